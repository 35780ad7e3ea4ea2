// Original file: proto/worker.proto

import type { Weights as _heddle_v1_Weights, Weights__Output as _heddle_v1_Weights__Output } from '../../heddle/v1/Weights.ts';
import type { EngineOptions as _heddle_v1_EngineOptions, EngineOptions__Output as _heddle_v1_EngineOptions__Output } from '../../heddle/v1/EngineOptions.ts';
import type { Upstream as _heddle_v1_Upstream, Upstream__Output as _heddle_v1_Upstream__Output } from '../../heddle/v1/Upstream.ts';
import type { GpuSplit as _heddle_v1_GpuSplit, GpuSplit__Output as _heddle_v1_GpuSplit__Output } from '../../heddle/v1/GpuSplit.ts';
import type { Stage as _heddle_v1_Stage, Stage__Output as _heddle_v1_Stage__Output } from '../../heddle/v1/Stage.ts';

export interface Deployment {
  'key'?: (string);
  'engine'?: (string);
  'weights'?: (_heddle_v1_Weights | null);
  'options'?: (_heddle_v1_EngineOptions | null);
  'upstream'?: (_heddle_v1_Upstream | null);
  'split'?: (_heddle_v1_GpuSplit | null);
  'stage'?: (_heddle_v1_Stage | null);
}

export interface Deployment__Output {
  'key': (string);
  'engine': (string);
  'weights': (_heddle_v1_Weights__Output | null);
  'options': (_heddle_v1_EngineOptions__Output | null);
  'upstream': (_heddle_v1_Upstream__Output | null);
  'split': (_heddle_v1_GpuSplit__Output | null);
  'stage': (_heddle_v1_Stage__Output | null);
}

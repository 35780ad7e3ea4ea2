// Original file: proto/worker.proto

import type { Weights as _heddle_v1_Weights, Weights__Output as _heddle_v1_Weights__Output } from '../../heddle/v1/Weights.ts';
import type { EngineOptions as _heddle_v1_EngineOptions, EngineOptions__Output as _heddle_v1_EngineOptions__Output } from '../../heddle/v1/EngineOptions.ts';
import type { StageWorker as _heddle_v1_StageWorker, StageWorker__Output as _heddle_v1_StageWorker__Output } from '../../heddle/v1/StageWorker.ts';

export interface PlanStagesRequest {
  'weights'?: (_heddle_v1_Weights | null);
  'options'?: (_heddle_v1_EngineOptions | null);
  'workers'?: (_heddle_v1_StageWorker)[];
  'maxStages'?: (number);
}

export interface PlanStagesRequest__Output {
  'weights': (_heddle_v1_Weights__Output | null);
  'options': (_heddle_v1_EngineOptions__Output | null);
  'workers': (_heddle_v1_StageWorker__Output)[];
  'maxStages': (number);
}

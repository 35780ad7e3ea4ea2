// Original file: proto/worker.proto

import type { Weights as _heddle_v1_Weights, Weights__Output as _heddle_v1_Weights__Output } from '../../heddle/v1/Weights.ts';
import type { EngineOptions as _heddle_v1_EngineOptions, EngineOptions__Output as _heddle_v1_EngineOptions__Output } from '../../heddle/v1/EngineOptions.ts';

export interface SizeModelRequest {
  'weights'?: (_heddle_v1_Weights | null);
  'options'?: (_heddle_v1_EngineOptions | null);
  'whole'?: (boolean);
}

export interface SizeModelRequest__Output {
  'weights': (_heddle_v1_Weights__Output | null);
  'options': (_heddle_v1_EngineOptions__Output | null);
  'whole': (boolean);
}

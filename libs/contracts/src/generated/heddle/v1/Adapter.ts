// Original file: proto/worker.proto

import type { Weights as _heddle_v1_Weights, Weights__Output as _heddle_v1_Weights__Output } from '../../heddle/v1/Weights.ts';

export interface Adapter {
  'weights'?: (_heddle_v1_Weights | null);
  'scale'?: (number | string);
}

export interface Adapter__Output {
  'weights': (_heddle_v1_Weights__Output | null);
  'scale': (number);
}

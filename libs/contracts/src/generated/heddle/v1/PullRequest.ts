// Original file: proto/worker.proto

import type { Weights as _heddle_v1_Weights, Weights__Output as _heddle_v1_Weights__Output } from '../../heddle/v1/Weights.ts';

export interface PullRequest {
  'weights'?: (_heddle_v1_Weights | null);
}

export interface PullRequest__Output {
  'weights': (_heddle_v1_Weights__Output | null);
}

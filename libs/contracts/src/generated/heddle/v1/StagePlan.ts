// Original file: proto/worker.proto

import type { PlannedStage as _heddle_v1_PlannedStage, PlannedStage__Output as _heddle_v1_PlannedStage__Output } from '../../heddle/v1/PlannedStage.ts';

export interface StagePlan {
  'stages'?: (_heddle_v1_PlannedStage)[];
  'contextTokens'?: (number);
  'kvTokens'?: (number);
  'maxSequences'?: (number);
  'index'?: (string);
}

export interface StagePlan__Output {
  'stages': (_heddle_v1_PlannedStage__Output)[];
  'contextTokens': (number);
  'kvTokens': (number);
  'maxSequences': (number);
  'index': (string);
}

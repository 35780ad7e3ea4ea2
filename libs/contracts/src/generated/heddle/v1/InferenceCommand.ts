// Original file: proto/worker.proto

import type { Start as _heddle_v1_Start, Start__Output as _heddle_v1_Start__Output } from '../../heddle/v1/Start.ts';
import type { Cancel as _heddle_v1_Cancel, Cancel__Output as _heddle_v1_Cancel__Output } from '../../heddle/v1/Cancel.ts';
import type { Grant as _heddle_v1_Grant, Grant__Output as _heddle_v1_Grant__Output } from '../../heddle/v1/Grant.ts';

export interface InferenceCommand {
  'start'?: (_heddle_v1_Start | null);
  'cancel'?: (_heddle_v1_Cancel | null);
  'grant'?: (_heddle_v1_Grant | null);
  'command'?: "start"|"cancel"|"grant";
}

export interface InferenceCommand__Output {
  'start'?: (_heddle_v1_Start__Output | null);
  'cancel'?: (_heddle_v1_Cancel__Output | null);
  'grant'?: (_heddle_v1_Grant__Output | null);
  'command'?: "start"|"cancel"|"grant";
}

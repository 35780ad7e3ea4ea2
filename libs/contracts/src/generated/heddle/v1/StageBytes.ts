// Original file: proto/worker.proto

import type { OpenStage as _heddle_v1_OpenStage, OpenStage__Output as _heddle_v1_OpenStage__Output } from '../../heddle/v1/OpenStage.ts';
import type { StageOpened as _heddle_v1_StageOpened, StageOpened__Output as _heddle_v1_StageOpened__Output } from '../../heddle/v1/StageOpened.ts';

export interface StageBytes {
  'open'?: (_heddle_v1_OpenStage | null);
  'opened'?: (_heddle_v1_StageOpened | null);
  'frames'?: (Buffer | Uint8Array | string);
  'content'?: "open"|"opened"|"frames";
}

export interface StageBytes__Output {
  'open'?: (_heddle_v1_OpenStage__Output | null);
  'opened'?: (_heddle_v1_StageOpened__Output | null);
  'frames'?: (Buffer);
  'content'?: "open"|"opened"|"frames";
}

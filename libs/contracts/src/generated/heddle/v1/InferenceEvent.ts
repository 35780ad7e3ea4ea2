// Original file: proto/worker.proto

import type { Started as _heddle_v1_Started, Started__Output as _heddle_v1_Started__Output } from '../../heddle/v1/Started.ts';
import type { Delta as _heddle_v1_Delta, Delta__Output as _heddle_v1_Delta__Output } from '../../heddle/v1/Delta.ts';
import type { Finish as _heddle_v1_Finish, Finish__Output as _heddle_v1_Finish__Output } from '../../heddle/v1/Finish.ts';
import type { Usage as _heddle_v1_Usage, Usage__Output as _heddle_v1_Usage__Output } from '../../heddle/v1/Usage.ts';
import type { Failure as _heddle_v1_Failure, Failure__Output as _heddle_v1_Failure__Output } from '../../heddle/v1/Failure.ts';
import type { Embedding as _heddle_v1_Embedding, Embedding__Output as _heddle_v1_Embedding__Output } from '../../heddle/v1/Embedding.ts';
import type { Reading as _heddle_v1_Reading, Reading__Output as _heddle_v1_Reading__Output } from '../../heddle/v1/Reading.ts';
import type { Prompt as _heddle_v1_Prompt, Prompt__Output as _heddle_v1_Prompt__Output } from '../../heddle/v1/Prompt.ts';

export interface InferenceEvent {
  'id'?: (number);
  'started'?: (_heddle_v1_Started | null);
  'delta'?: (_heddle_v1_Delta | null);
  'finish'?: (_heddle_v1_Finish | null);
  'done'?: (_heddle_v1_Usage | null);
  'failed'?: (_heddle_v1_Failure | null);
  'embedding'?: (_heddle_v1_Embedding | null);
  'reading'?: (_heddle_v1_Reading | null);
  'prompt'?: (_heddle_v1_Prompt | null);
  'event'?: "started"|"delta"|"finish"|"done"|"failed"|"embedding"|"reading"|"prompt";
}

export interface InferenceEvent__Output {
  'id': (number);
  'started'?: (_heddle_v1_Started__Output | null);
  'delta'?: (_heddle_v1_Delta__Output | null);
  'finish'?: (_heddle_v1_Finish__Output | null);
  'done'?: (_heddle_v1_Usage__Output | null);
  'failed'?: (_heddle_v1_Failure__Output | null);
  'embedding'?: (_heddle_v1_Embedding__Output | null);
  'reading'?: (_heddle_v1_Reading__Output | null);
  'prompt'?: (_heddle_v1_Prompt__Output | null);
  'event'?: "started"|"delta"|"finish"|"done"|"failed"|"embedding"|"reading"|"prompt";
}

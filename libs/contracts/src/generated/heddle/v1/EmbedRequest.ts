// Original file: proto/worker.proto

import type { EmbedInput as _heddle_v1_EmbedInput, EmbedInput__Output as _heddle_v1_EmbedInput__Output } from '../../heddle/v1/EmbedInput.ts';

export interface EmbedRequest {
  'inputs'?: (_heddle_v1_EmbedInput)[];
}

export interface EmbedRequest__Output {
  'inputs': (_heddle_v1_EmbedInput__Output)[];
}

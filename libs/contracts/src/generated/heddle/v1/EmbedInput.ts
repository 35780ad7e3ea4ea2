// Original file: proto/worker.proto

import type { TokenInput as _heddle_v1_TokenInput, TokenInput__Output as _heddle_v1_TokenInput__Output } from '../../heddle/v1/TokenInput.ts';

export interface EmbedInput {
  'text'?: (string);
  'tokens'?: (_heddle_v1_TokenInput | null);
  'input'?: "text"|"tokens";
}

export interface EmbedInput__Output {
  'text'?: (string);
  'tokens'?: (_heddle_v1_TokenInput__Output | null);
  'input'?: "text"|"tokens";
}

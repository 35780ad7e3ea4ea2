// Original file: proto/worker.proto

import type { TokenInput as _heddle_v1_TokenInput, TokenInput__Output as _heddle_v1_TokenInput__Output } from '../../heddle/v1/TokenInput.ts';
import type { PairInput as _heddle_v1_PairInput, PairInput__Output as _heddle_v1_PairInput__Output } from '../../heddle/v1/PairInput.ts';

export interface EmbedInput {
  'text'?: (string);
  'tokens'?: (_heddle_v1_TokenInput | null);
  'pair'?: (_heddle_v1_PairInput | null);
  'input'?: "text"|"tokens"|"pair";
}

export interface EmbedInput__Output {
  'text'?: (string);
  'tokens'?: (_heddle_v1_TokenInput__Output | null);
  'pair'?: (_heddle_v1_PairInput__Output | null);
  'input'?: "text"|"tokens"|"pair";
}

// Original file: proto/worker.proto

import type { TokenLogprob as _heddle_v1_TokenLogprob, TokenLogprob__Output as _heddle_v1_TokenLogprob__Output } from '../../heddle/v1/TokenLogprob.ts';

export interface TokenLogprob {
  'token'?: (string);
  'utf8'?: (Buffer | Uint8Array | string);
  'logprob'?: (number | string);
  'top'?: (_heddle_v1_TokenLogprob)[];
}

export interface TokenLogprob__Output {
  'token': (string);
  'utf8': (Buffer);
  'logprob': (number);
  'top': (_heddle_v1_TokenLogprob__Output)[];
}

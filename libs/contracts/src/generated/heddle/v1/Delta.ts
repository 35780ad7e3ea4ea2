// Original file: proto/worker.proto

import type { TokenLogprob as _heddle_v1_TokenLogprob, TokenLogprob__Output as _heddle_v1_TokenLogprob__Output } from '../../heddle/v1/TokenLogprob.ts';

export interface Delta {
  'choice'?: (number);
  'text'?: (string);
  'tokens'?: (number);
  'logprobs'?: (_heddle_v1_TokenLogprob)[];
  'tokenIds'?: (number)[];
  'cut'?: (boolean);
}

export interface Delta__Output {
  'choice': (number);
  'text': (string);
  'tokens': (number);
  'logprobs': (_heddle_v1_TokenLogprob__Output)[];
  'tokenIds': (number)[];
  'cut': (boolean);
}

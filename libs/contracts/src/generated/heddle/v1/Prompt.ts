// Original file: proto/worker.proto

import type { TokenLogprob as _heddle_v1_TokenLogprob, TokenLogprob__Output as _heddle_v1_TokenLogprob__Output } from '../../heddle/v1/TokenLogprob.ts';

export interface Prompt {
  'text'?: (string);
  'logprobs'?: (_heddle_v1_TokenLogprob)[];
}

export interface Prompt__Output {
  'text': (string);
  'logprobs': (_heddle_v1_TokenLogprob__Output)[];
}

// Original file: proto/worker.proto

import type { Usage as _heddle_v1_Usage, Usage__Output as _heddle_v1_Usage__Output } from '../../heddle/v1/Usage.ts';

export interface Failure {
  'code'?: (string);
  'message'?: (string);
  'param'?: (string);
  'usage'?: (_heddle_v1_Usage | null);
}

export interface Failure__Output {
  'code': (string);
  'message': (string);
  'param': (string);
  'usage': (_heddle_v1_Usage__Output | null);
}

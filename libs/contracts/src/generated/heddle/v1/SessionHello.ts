// Original file: proto/tasks.proto

import type { Long } from '@grpc/proto-loader';

export interface SessionHello {
  'term'?: (number | string | Long);
  'masterId'?: (string);
  'leaseMs'?: (number);
  'cluster'?: (string);
}

export interface SessionHello__Output {
  'term': (number);
  'masterId': (string);
  'leaseMs': (number);
  'cluster': (string);
}

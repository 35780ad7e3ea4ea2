// Original file: proto/cluster.proto

import type { Long } from '@grpc/proto-loader';

export interface Refusals {
  'strangers'?: (number | string | Long);
  'invalid'?: (number | string | Long);
  'stale'?: (number | string | Long);
}

export interface Refusals__Output {
  'strangers': (number);
  'invalid': (number);
  'stale': (number);
}

// Original file: proto/cluster.proto

import type { Long } from '@grpc/proto-loader';

export interface Refusals {
  'unauthenticated'?: (number | string | Long);
  'invalid'?: (number | string | Long);
  'stale'?: (number | string | Long);
}

export interface Refusals__Output {
  'unauthenticated': (number);
  'invalid': (number);
  'stale': (number);
}

// Original file: proto/cluster.proto

import type { Long } from '@grpc/proto-loader';

export interface ResourceLimit {
  'id'?: (string);
  'memoryBytes'?: (number | string | Long);
  'cpuMilli'?: (number);
  'isOffer'?: (boolean);
}

export interface ResourceLimit__Output {
  'id': (string);
  'memoryBytes': (number);
  'cpuMilli': (number);
  'isOffer': (boolean);
}

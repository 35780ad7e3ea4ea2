// Original file: proto/worker.proto

import type { Long } from '@grpc/proto-loader';

export interface ModelSize {
  'memoryBytes'?: (number | string | Long);
}

export interface ModelSize__Output {
  'memoryBytes': (number);
}

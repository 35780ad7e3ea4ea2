// Original file: proto/worker.proto

import type { Long } from '@grpc/proto-loader';

export interface PlannedStage {
  'node'?: (string);
  'from'?: (number);
  'to'?: (number);
  'memoryBytes'?: (number | string | Long);
}

export interface PlannedStage__Output {
  'node': (string);
  'from': (number);
  'to': (number);
  'memoryBytes': (number);
}

// Original file: proto/worker.proto

import type { Long } from '@grpc/proto-loader';

export interface WeightsRange {
  'index'?: (string);
  'offset'?: (number | string | Long);
  'bytes'?: (number | string | Long);
}

export interface WeightsRange__Output {
  'index': (string);
  'offset': (number);
  'bytes': (number);
}

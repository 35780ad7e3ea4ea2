// Original file: proto/worker.proto

import type { Long } from '@grpc/proto-loader';

export interface StageWorker {
  'node'?: (string);
  'memoryBytes'?: (number | string | Long);
  'name'?: (string);
  'rack'?: (string);
  'fabric'?: (string);
}

export interface StageWorker__Output {
  'node': (string);
  'memoryBytes': (number);
  'name': (string);
  'rack': (string);
  'fabric': (string);
}

// Original file: proto/worker.proto

import type { Long } from '@grpc/proto-loader';

export interface StagePeer {
  'node'?: (string);
  'address'?: (string);
  'deployment'?: (string);
  'from'?: (number);
  'to'?: (number);
  'memoryBytes'?: (number | string | Long);
}

export interface StagePeer__Output {
  'node': (string);
  'address': (string);
  'deployment': (string);
  'from': (number);
  'to': (number);
  'memoryBytes': (number);
}

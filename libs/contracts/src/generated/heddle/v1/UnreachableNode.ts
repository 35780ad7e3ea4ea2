// Original file: proto/cluster.proto

import type { Long } from '@grpc/proto-loader';

export interface UnreachableNode {
  'node'?: (string);
  'forMs'?: (number | string | Long);
}

export interface UnreachableNode__Output {
  'node': (string);
  'forMs': (number);
}

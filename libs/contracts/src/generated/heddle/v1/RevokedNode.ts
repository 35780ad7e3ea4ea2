// Original file: proto/cluster.proto

import type { Long } from '@grpc/proto-loader';

export interface RevokedNode {
  'node'?: (string);
  'atMs'?: (number | string | Long);
}

export interface RevokedNode__Output {
  'node': (string);
  'atMs': (number);
}

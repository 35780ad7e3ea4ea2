// Original file: proto/parameters.proto

import type { Long } from '@grpc/proto-loader';

export interface ShardCheckpoint {
  'name'?: (string);
  'version'?: (number | string | Long);
  'bytes'?: (number | string | Long);
  'sha256'?: (Buffer | Uint8Array | string);
}

export interface ShardCheckpoint__Output {
  'name': (string);
  'version': (number);
  'bytes': (number);
  'sha256': (Buffer);
}

// Original file: proto/parameters.proto

import type { Long } from '@grpc/proto-loader';

export interface PushReply {
  'version'?: (number | string | Long);
  'path'?: (string);
}

export interface PushReply__Output {
  'version': (number);
  'path': (string);
}

// Original file: proto/worker.proto

import type { Long } from '@grpc/proto-loader';

export interface PullProgress {
  'pulledBytes'?: (number | string | Long);
  'totalBytes'?: (number | string | Long);
  'source'?: (string);
  'done'?: (boolean);
}

export interface PullProgress__Output {
  'pulledBytes': (number);
  'totalBytes': (number);
  'source': (string);
  'done': (boolean);
}

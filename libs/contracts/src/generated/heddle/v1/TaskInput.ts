// Original file: proto/tasks.proto

import type { Long } from '@grpc/proto-loader';

export interface TaskInput {
  'name'?: (string);
  'source'?: (string);
  'sha256'?: (string);
  'bytes'?: (number | string | Long);
  'skipped'?: (boolean);
}

export interface TaskInput__Output {
  'name': (string);
  'source': (string);
  'sha256': (string);
  'bytes': (number);
  'skipped': (boolean);
}

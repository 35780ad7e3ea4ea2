// Original file: proto/tasks.proto

import type { Long } from '@grpc/proto-loader';

export interface Artifact {
  'name'?: (string);
  'bytes'?: (number | string | Long);
  'sha256'?: (string);
  'pieces'?: (string);
}

export interface Artifact__Output {
  'name': (string);
  'bytes': (number);
  'sha256': (string);
  'pieces': (string);
}

// Original file: proto/worker.proto

import type { Long } from '@grpc/proto-loader';

export interface Weights {
  'key'?: (string);
  'file'?: (string);
  'sources'?: (string)[];
  'sha256'?: (string);
  'sizeBytes'?: (number | string | Long);
  'license'?: (string);
}

export interface Weights__Output {
  'key': (string);
  'file': (string);
  'sources': (string)[];
  'sha256': (string);
  'sizeBytes': (number);
  'license': (string);
}

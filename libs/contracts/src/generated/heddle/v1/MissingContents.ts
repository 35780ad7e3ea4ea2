// Original file: proto/documents.proto

import type { Long } from '@grpc/proto-loader';

export interface MissingContents {
  'count'?: (number | string | Long);
}

export interface MissingContents__Output {
  'count': (number);
}

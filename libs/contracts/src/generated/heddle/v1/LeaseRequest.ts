// Original file: proto/tasks.proto

import type { Long } from '@grpc/proto-loader';

export interface LeaseRequest {
  'request'?: (number | string | Long);
}

export interface LeaseRequest__Output {
  'request': (number);
}

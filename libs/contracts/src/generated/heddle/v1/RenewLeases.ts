// Original file: proto/tasks.proto

import type { Long } from '@grpc/proto-loader';

export interface RenewLeases {
  'request'?: (number | string | Long);
}

export interface RenewLeases__Output {
  'request': (number);
}

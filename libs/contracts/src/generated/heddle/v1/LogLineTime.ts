// Original file: proto/tasks.proto

import type { Long } from '@grpc/proto-loader';

export interface LogLineTime {
  'at'?: (number);
  'unixMs'?: (number | string | Long);
}

export interface LogLineTime__Output {
  'at': (number);
  'unixMs': (number);
}

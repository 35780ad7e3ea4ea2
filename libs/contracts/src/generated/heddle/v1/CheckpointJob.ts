// Original file: proto/parameters.proto

import type { Long } from '@grpc/proto-loader';

export interface CheckpointJob {
  'jobId'?: (string);
  'idleMs'?: (number | string | Long);
}

export interface CheckpointJob__Output {
  'jobId': (string);
  'idleMs': (number);
}

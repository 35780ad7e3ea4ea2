// Original file: proto/parameters.proto

import type { Long } from '@grpc/proto-loader';

export interface ShardMemberClock {
  'clock'?: (number | string | Long);
}

export interface ShardMemberClock__Output {
  'clock': (number);
}

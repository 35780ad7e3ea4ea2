// Original file: proto/parameters.proto

import type { ShardId as _heddle_v1_ShardId, ShardId__Output as _heddle_v1_ShardId__Output } from '../../heddle/v1/ShardId.ts';
import type { Long } from '@grpc/proto-loader';

export interface TakePart {
  'id'?: (_heddle_v1_ShardId | null);
  'clock'?: (number | string | Long);
}

export interface TakePart__Output {
  'id': (_heddle_v1_ShardId__Output | null);
  'clock': (number);
}

// Original file: proto/parameters.proto

import type { ShardId as _heddle_v1_ShardId, ShardId__Output as _heddle_v1_ShardId__Output } from '../../heddle/v1/ShardId.ts';
import type { Long } from '@grpc/proto-loader';

export interface PullParameters {
  'id'?: (_heddle_v1_ShardId | null);
  'rank'?: (number);
  'clock'?: (number | string | Long);
  'held'?: (number | string | Long);
  'plan'?: (string);
}

export interface PullParameters__Output {
  'id': (_heddle_v1_ShardId__Output | null);
  'rank': (number);
  'clock': (number);
  'held': (number);
  'plan': (string);
}

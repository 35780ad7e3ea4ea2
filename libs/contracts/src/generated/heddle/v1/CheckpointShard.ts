// Original file: proto/parameters.proto

import type { ShardId as _heddle_v1_ShardId, ShardId__Output as _heddle_v1_ShardId__Output } from '../../heddle/v1/ShardId.ts';
import type { Long } from '@grpc/proto-loader';

export interface CheckpointShard {
  'id'?: (_heddle_v1_ShardId | null);
  'version'?: (number | string | Long);
  'name'?: (string);
  'keep'?: (number);
}

export interface CheckpointShard__Output {
  'id': (_heddle_v1_ShardId__Output | null);
  'version': (number);
  'name': (string);
  'keep': (number);
}

// Original file: proto/parameters.proto

import type { ShardId as _heddle_v1_ShardId, ShardId__Output as _heddle_v1_ShardId__Output } from '../../heddle/v1/ShardId.ts';

export interface ReplicateShard {
  'id'?: (_heddle_v1_ShardId | null);
  'checkpoint'?: (string);
  'source'?: (string);
  'keep'?: (number);
}

export interface ReplicateShard__Output {
  'id': (_heddle_v1_ShardId__Output | null);
  'checkpoint': (string);
  'source': (string);
  'keep': (number);
}

// Original file: proto/parameters.proto

import type { ShardId as _heddle_v1_ShardId, ShardId__Output as _heddle_v1_ShardId__Output } from '../../heddle/v1/ShardId.ts';

export interface ShardMember {
  'id'?: (_heddle_v1_ShardId | null);
  'rank'?: (number);
  'leaves'?: (boolean);
  'incarnation'?: (number);
  'certificate'?: (string);
}

export interface ShardMember__Output {
  'id': (_heddle_v1_ShardId__Output | null);
  'rank': (number);
  'leaves': (boolean);
  'incarnation': (number);
  'certificate': (string);
}

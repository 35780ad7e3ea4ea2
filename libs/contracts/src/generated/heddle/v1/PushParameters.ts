// Original file: proto/parameters.proto

import type { ShardId as _heddle_v1_ShardId, ShardId__Output as _heddle_v1_ShardId__Output } from '../../heddle/v1/ShardId.ts';
import type { Long } from '@grpc/proto-loader';

export interface PushParameters {
  'id'?: (_heddle_v1_ShardId | null);
  'rank'?: (number);
  'clock'?: (number | string | Long);
  'weight'?: (number | string);
  'learningRate'?: (number | string);
  'sources'?: (string)[];
  'squares'?: (number | string);
  'plan'?: (string);
}

export interface PushParameters__Output {
  'id': (_heddle_v1_ShardId__Output | null);
  'rank': (number);
  'clock': (number);
  'weight': (number);
  'learningRate': (number);
  'sources': (string)[];
  'squares': (number);
  'plan': (string);
}

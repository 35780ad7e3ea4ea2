// Original file: proto/parameters.proto

import type { ShardId as _heddle_v1_ShardId, ShardId__Output as _heddle_v1_ShardId__Output } from '../../heddle/v1/ShardId.ts';
import type { TensorShape as _heddle_v1_TensorShape, TensorShape__Output as _heddle_v1_TensorShape__Output } from '../../heddle/v1/TensorShape.ts';
import type { ShardOptimizer as _heddle_v1_ShardOptimizer, ShardOptimizer__Output as _heddle_v1_ShardOptimizer__Output } from '../../heddle/v1/ShardOptimizer.ts';
import type { Consistency as _heddle_v1_Consistency, Consistency__Output as _heddle_v1_Consistency__Output } from '../../heddle/v1/Consistency.ts';

export interface OpenShard {
  'id'?: (_heddle_v1_ShardId | null);
  'parameters'?: (_heddle_v1_TensorShape)[];
  'shards'?: (number);
  'optimizer'?: (_heddle_v1_ShardOptimizer | null);
  'consistency'?: (_heddle_v1_Consistency | null);
  'workers'?: (number);
  'jobToken'?: (Buffer | Uint8Array | string);
  'servers'?: (string)[];
  'fragments'?: (number);
}

export interface OpenShard__Output {
  'id': (_heddle_v1_ShardId__Output | null);
  'parameters': (_heddle_v1_TensorShape__Output)[];
  'shards': (number);
  'optimizer': (_heddle_v1_ShardOptimizer__Output | null);
  'consistency': (_heddle_v1_Consistency__Output | null);
  'workers': (number);
  'jobToken': (Buffer);
  'servers': (string)[];
  'fragments': (number);
}

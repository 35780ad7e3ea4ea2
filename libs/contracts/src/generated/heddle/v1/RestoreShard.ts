// Original file: proto/parameters.proto

import type { OpenShard as _heddle_v1_OpenShard, OpenShard__Output as _heddle_v1_OpenShard__Output } from '../../heddle/v1/OpenShard.ts';

export interface RestoreShard {
  'open'?: (_heddle_v1_OpenShard | null);
  'name'?: (string);
  'sources'?: (string)[];
  'pieces'?: (number);
}

export interface RestoreShard__Output {
  'open': (_heddle_v1_OpenShard__Output | null);
  'name': (string);
  'sources': (string)[];
  'pieces': (number);
}

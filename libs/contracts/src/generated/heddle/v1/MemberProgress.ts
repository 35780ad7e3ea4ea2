// Original file: proto/raft.proto

import type { Long } from '@grpc/proto-loader';

export interface MemberProgress {
  'id'?: (number);
  'match'?: (number | string | Long);
  'active'?: (boolean);
  'behind'?: (boolean);
}

export interface MemberProgress__Output {
  'id': (number);
  'match': (number);
  'active': (boolean);
  'behind': (boolean);
}

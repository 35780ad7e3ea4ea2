// Original file: proto/raft.proto

import type { RaftHello as _heddle_v1_RaftHello, RaftHello__Output as _heddle_v1_RaftHello__Output } from '../../heddle/v1/RaftHello.ts';
import type { RaftMessage as _heddle_v1_RaftMessage, RaftMessage__Output as _heddle_v1_RaftMessage__Output } from '../../heddle/v1/RaftMessage.ts';
import type { Long } from '@grpc/proto-loader';

export interface SnapshotHead {
  'hello'?: (_heddle_v1_RaftHello | null);
  'message'?: (_heddle_v1_RaftMessage | null);
  'index'?: (number | string | Long);
  'term'?: (number | string | Long);
  'detail'?: (Buffer | Uint8Array | string);
}

export interface SnapshotHead__Output {
  'hello': (_heddle_v1_RaftHello__Output | null);
  'message': (_heddle_v1_RaftMessage__Output | null);
  'index': (number);
  'term': (number);
  'detail': (Buffer);
}

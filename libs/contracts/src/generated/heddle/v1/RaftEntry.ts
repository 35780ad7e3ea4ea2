// Original file: proto/raft.proto

import type { RaftEntryType as _heddle_v1_RaftEntryType, RaftEntryType__Output as _heddle_v1_RaftEntryType__Output } from '../../heddle/v1/RaftEntryType.ts';
import type { Long } from '@grpc/proto-loader';

export interface RaftEntry {
  'type'?: (_heddle_v1_RaftEntryType);
  'term'?: (number | string | Long);
  'index'?: (number | string | Long);
  'data'?: (Buffer | Uint8Array | string);
}

export interface RaftEntry__Output {
  'type': (_heddle_v1_RaftEntryType__Output);
  'term': (number);
  'index': (number);
  'data': (Buffer);
}

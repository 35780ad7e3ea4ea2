// Original file: proto/raft.proto

import type { RaftMessage as _heddle_v1_RaftMessage, RaftMessage__Output as _heddle_v1_RaftMessage__Output } from '../../heddle/v1/RaftMessage.ts';

export interface RaftBatch {
  'messages'?: (_heddle_v1_RaftMessage)[];
}

export interface RaftBatch__Output {
  'messages': (_heddle_v1_RaftMessage__Output)[];
}

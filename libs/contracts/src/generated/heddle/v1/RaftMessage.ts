// Original file: proto/raft.proto

import type { RaftMessageType as _heddle_v1_RaftMessageType, RaftMessageType__Output as _heddle_v1_RaftMessageType__Output } from '../../heddle/v1/RaftMessageType.ts';
import type { RaftEntry as _heddle_v1_RaftEntry, RaftEntry__Output as _heddle_v1_RaftEntry__Output } from '../../heddle/v1/RaftEntry.ts';
import type { Long } from '@grpc/proto-loader';

export interface RaftMessage {
  'type'?: (_heddle_v1_RaftMessageType);
  'to'?: (number | string | Long);
  'from'?: (number | string | Long);
  'term'?: (number | string | Long);
  'logTerm'?: (number | string | Long);
  'index'?: (number | string | Long);
  'entries'?: (_heddle_v1_RaftEntry)[];
  'commit'?: (number | string | Long);
  'reject'?: (boolean);
  'rejectHint'?: (number | string | Long);
  'context'?: (Buffer | Uint8Array | string);
}

export interface RaftMessage__Output {
  'type': (_heddle_v1_RaftMessageType__Output);
  'to': (number);
  'from': (number);
  'term': (number);
  'logTerm': (number);
  'index': (number);
  'entries': (_heddle_v1_RaftEntry__Output)[];
  'commit': (number);
  'reject': (boolean);
  'rejectHint': (number);
  'context': (Buffer);
}

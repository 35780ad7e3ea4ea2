// Original file: proto/raft.proto

import type { RaftHello as _heddle_v1_RaftHello, RaftHello__Output as _heddle_v1_RaftHello__Output } from '../../heddle/v1/RaftHello.ts';
import type { RaftBatch as _heddle_v1_RaftBatch, RaftBatch__Output as _heddle_v1_RaftBatch__Output } from '../../heddle/v1/RaftBatch.ts';

export interface RaftFrame {
  'hello'?: (_heddle_v1_RaftHello | null);
  'batch'?: (_heddle_v1_RaftBatch | null);
  'frame'?: "hello"|"batch";
}

export interface RaftFrame__Output {
  'hello'?: (_heddle_v1_RaftHello__Output | null);
  'batch'?: (_heddle_v1_RaftBatch__Output | null);
  'frame'?: "hello"|"batch";
}

// Original file: proto/raft.proto

import type { MemberProgress as _heddle_v1_MemberProgress, MemberProgress__Output as _heddle_v1_MemberProgress__Output } from '../../heddle/v1/MemberProgress.ts';

export interface ProgressReply {
  'members'?: (_heddle_v1_MemberProgress)[];
}

export interface ProgressReply__Output {
  'members': (_heddle_v1_MemberProgress__Output)[];
}

// Original file: proto/raft.proto

import type { MethodDefinition } from '@grpc/proto-loader'
import type { Introduction as _heddle_v1_Introduction, Introduction__Output as _heddle_v1_Introduction__Output } from '../../heddle/v1/Introduction.ts';
import type { IntroductionReply as _heddle_v1_IntroductionReply, IntroductionReply__Output as _heddle_v1_IntroductionReply__Output } from '../../heddle/v1/IntroductionReply.ts';
import type { ProgressReply as _heddle_v1_ProgressReply, ProgressReply__Output as _heddle_v1_ProgressReply__Output } from '../../heddle/v1/ProgressReply.ts';
import type { ProgressRequest as _heddle_v1_ProgressRequest, ProgressRequest__Output as _heddle_v1_ProgressRequest__Output } from '../../heddle/v1/ProgressRequest.ts';
import type { RaftFrame as _heddle_v1_RaftFrame, RaftFrame__Output as _heddle_v1_RaftFrame__Output } from '../../heddle/v1/RaftFrame.ts';
import type { SnapshotPart as _heddle_v1_SnapshotPart, SnapshotPart__Output as _heddle_v1_SnapshotPart__Output } from '../../heddle/v1/SnapshotPart.ts';
import type { SnapshotReply as _heddle_v1_SnapshotReply, SnapshotReply__Output as _heddle_v1_SnapshotReply__Output } from '../../heddle/v1/SnapshotReply.ts';

export interface RaftDefinition {
  Exchange: MethodDefinition<_heddle_v1_RaftFrame, _heddle_v1_RaftFrame, _heddle_v1_RaftFrame__Output, _heddle_v1_RaftFrame__Output>
  InstallSnapshot: MethodDefinition<_heddle_v1_SnapshotPart, _heddle_v1_SnapshotReply, _heddle_v1_SnapshotPart__Output, _heddle_v1_SnapshotReply__Output>
  Introduce: MethodDefinition<_heddle_v1_Introduction, _heddle_v1_IntroductionReply, _heddle_v1_Introduction__Output, _heddle_v1_IntroductionReply__Output>
  Progress: MethodDefinition<_heddle_v1_ProgressRequest, _heddle_v1_ProgressReply, _heddle_v1_ProgressRequest__Output, _heddle_v1_ProgressReply__Output>
}

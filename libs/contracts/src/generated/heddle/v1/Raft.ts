// Original file: proto/raft.proto

import type { MethodDefinition } from '@grpc/proto-loader'
import type { Introduction as _heddle_v1_Introduction, Introduction__Output as _heddle_v1_Introduction__Output } from '../../heddle/v1/Introduction.ts';
import type { IntroductionReply as _heddle_v1_IntroductionReply, IntroductionReply__Output as _heddle_v1_IntroductionReply__Output } from '../../heddle/v1/IntroductionReply.ts';
import type { LocateReply as _heddle_v1_LocateReply, LocateReply__Output as _heddle_v1_LocateReply__Output } from '../../heddle/v1/LocateReply.ts';
import type { LocateRequest as _heddle_v1_LocateRequest, LocateRequest__Output as _heddle_v1_LocateRequest__Output } from '../../heddle/v1/LocateRequest.ts';
import type { ProgressReply as _heddle_v1_ProgressReply, ProgressReply__Output as _heddle_v1_ProgressReply__Output } from '../../heddle/v1/ProgressReply.ts';
import type { ProgressRequest as _heddle_v1_ProgressRequest, ProgressRequest__Output as _heddle_v1_ProgressRequest__Output } from '../../heddle/v1/ProgressRequest.ts';

export interface RaftDefinition {
  Introduce: MethodDefinition<_heddle_v1_Introduction, _heddle_v1_IntroductionReply, _heddle_v1_Introduction__Output, _heddle_v1_IntroductionReply__Output>
  Locate: MethodDefinition<_heddle_v1_LocateRequest, _heddle_v1_LocateReply, _heddle_v1_LocateRequest__Output, _heddle_v1_LocateReply__Output>
  Progress: MethodDefinition<_heddle_v1_ProgressRequest, _heddle_v1_ProgressReply, _heddle_v1_ProgressRequest__Output, _heddle_v1_ProgressReply__Output>
}

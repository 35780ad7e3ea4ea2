// Original file: proto/parameters.proto

import type { MethodDefinition } from '@grpc/proto-loader'
import type { CheckpointJobs as _heddle_v1_CheckpointJobs, CheckpointJobs__Output as _heddle_v1_CheckpointJobs__Output } from '../../heddle/v1/CheckpointJobs.ts';
import type { CheckpointShard as _heddle_v1_CheckpointShard, CheckpointShard__Output as _heddle_v1_CheckpointShard__Output } from '../../heddle/v1/CheckpointShard.ts';
import type { CloseShardReply as _heddle_v1_CloseShardReply, CloseShardReply__Output as _heddle_v1_CloseShardReply__Output } from '../../heddle/v1/CloseShardReply.ts';
import type { ExportShard as _heddle_v1_ExportShard, ExportShard__Output as _heddle_v1_ExportShard__Output } from '../../heddle/v1/ExportShard.ts';
import type { ForgetJobCheckpoints as _heddle_v1_ForgetJobCheckpoints, ForgetJobCheckpoints__Output as _heddle_v1_ForgetJobCheckpoints__Output } from '../../heddle/v1/ForgetJobCheckpoints.ts';
import type { ForgetJobReply as _heddle_v1_ForgetJobReply, ForgetJobReply__Output as _heddle_v1_ForgetJobReply__Output } from '../../heddle/v1/ForgetJobReply.ts';
import type { ListCheckpointJobs as _heddle_v1_ListCheckpointJobs, ListCheckpointJobs__Output as _heddle_v1_ListCheckpointJobs__Output } from '../../heddle/v1/ListCheckpointJobs.ts';
import type { ListShardCheckpoints as _heddle_v1_ListShardCheckpoints, ListShardCheckpoints__Output as _heddle_v1_ListShardCheckpoints__Output } from '../../heddle/v1/ListShardCheckpoints.ts';
import type { LostWorker as _heddle_v1_LostWorker, LostWorker__Output as _heddle_v1_LostWorker__Output } from '../../heddle/v1/LostWorker.ts';
import type { LostWorkerReply as _heddle_v1_LostWorkerReply, LostWorkerReply__Output as _heddle_v1_LostWorkerReply__Output } from '../../heddle/v1/LostWorkerReply.ts';
import type { NormPart as _heddle_v1_NormPart, NormPart__Output as _heddle_v1_NormPart__Output } from '../../heddle/v1/NormPart.ts';
import type { NormTotal as _heddle_v1_NormTotal, NormTotal__Output as _heddle_v1_NormTotal__Output } from '../../heddle/v1/NormTotal.ts';
import type { OpenShard as _heddle_v1_OpenShard, OpenShard__Output as _heddle_v1_OpenShard__Output } from '../../heddle/v1/OpenShard.ts';
import type { ParameterChunk as _heddle_v1_ParameterChunk, ParameterChunk__Output as _heddle_v1_ParameterChunk__Output } from '../../heddle/v1/ParameterChunk.ts';
import type { PullParameters as _heddle_v1_PullParameters, PullParameters__Output as _heddle_v1_PullParameters__Output } from '../../heddle/v1/PullParameters.ts';
import type { PushParameters as _heddle_v1_PushParameters, PushParameters__Output as _heddle_v1_PushParameters__Output } from '../../heddle/v1/PushParameters.ts';
import type { PushReply as _heddle_v1_PushReply, PushReply__Output as _heddle_v1_PushReply__Output } from '../../heddle/v1/PushReply.ts';
import type { ReplicateShard as _heddle_v1_ReplicateShard, ReplicateShard__Output as _heddle_v1_ReplicateShard__Output } from '../../heddle/v1/ReplicateShard.ts';
import type { RestoreShard as _heddle_v1_RestoreShard, RestoreShard__Output as _heddle_v1_RestoreShard__Output } from '../../heddle/v1/RestoreShard.ts';
import type { ShardCheckpoint as _heddle_v1_ShardCheckpoint, ShardCheckpoint__Output as _heddle_v1_ShardCheckpoint__Output } from '../../heddle/v1/ShardCheckpoint.ts';
import type { ShardCheckpointNames as _heddle_v1_ShardCheckpointNames, ShardCheckpointNames__Output as _heddle_v1_ShardCheckpointNames__Output } from '../../heddle/v1/ShardCheckpointNames.ts';
import type { ShardId as _heddle_v1_ShardId, ShardId__Output as _heddle_v1_ShardId__Output } from '../../heddle/v1/ShardId.ts';
import type { ShardMember as _heddle_v1_ShardMember, ShardMember__Output as _heddle_v1_ShardMember__Output } from '../../heddle/v1/ShardMember.ts';
import type { ShardMemberClock as _heddle_v1_ShardMemberClock, ShardMemberClock__Output as _heddle_v1_ShardMemberClock__Output } from '../../heddle/v1/ShardMemberClock.ts';
import type { ShardStatus as _heddle_v1_ShardStatus, ShardStatus__Output as _heddle_v1_ShardStatus__Output } from '../../heddle/v1/ShardStatus.ts';

export interface ParameterShardsDefinition {
  AddNorm: MethodDefinition<_heddle_v1_NormPart, _heddle_v1_NormTotal, _heddle_v1_NormPart__Output, _heddle_v1_NormTotal__Output>
  ChangeMember: MethodDefinition<_heddle_v1_ShardMember, _heddle_v1_ShardMemberClock, _heddle_v1_ShardMember__Output, _heddle_v1_ShardMemberClock__Output>
  Checkpoint: MethodDefinition<_heddle_v1_CheckpointShard, _heddle_v1_ShardCheckpoint, _heddle_v1_CheckpointShard__Output, _heddle_v1_ShardCheckpoint__Output>
  Close: MethodDefinition<_heddle_v1_ShardId, _heddle_v1_CloseShardReply, _heddle_v1_ShardId__Output, _heddle_v1_CloseShardReply__Output>
  Export: MethodDefinition<_heddle_v1_ExportShard, _heddle_v1_ParameterChunk, _heddle_v1_ExportShard__Output, _heddle_v1_ParameterChunk__Output>
  ForgetJob: MethodDefinition<_heddle_v1_ForgetJobCheckpoints, _heddle_v1_ForgetJobReply, _heddle_v1_ForgetJobCheckpoints__Output, _heddle_v1_ForgetJobReply__Output>
  ListCheckpointJobs: MethodDefinition<_heddle_v1_ListCheckpointJobs, _heddle_v1_CheckpointJobs, _heddle_v1_ListCheckpointJobs__Output, _heddle_v1_CheckpointJobs__Output>
  ListCheckpoints: MethodDefinition<_heddle_v1_ListShardCheckpoints, _heddle_v1_ShardCheckpointNames, _heddle_v1_ListShardCheckpoints__Output, _heddle_v1_ShardCheckpointNames__Output>
  Open: MethodDefinition<_heddle_v1_OpenShard, _heddle_v1_ShardStatus, _heddle_v1_OpenShard__Output, _heddle_v1_ShardStatus__Output>
  Pull: MethodDefinition<_heddle_v1_PullParameters, _heddle_v1_ParameterChunk, _heddle_v1_PullParameters__Output, _heddle_v1_ParameterChunk__Output>
  Push: MethodDefinition<_heddle_v1_PushParameters, _heddle_v1_PushReply, _heddle_v1_PushParameters__Output, _heddle_v1_PushReply__Output>
  ReleaseWorker: MethodDefinition<_heddle_v1_LostWorker, _heddle_v1_LostWorkerReply, _heddle_v1_LostWorker__Output, _heddle_v1_LostWorkerReply__Output>
  Replicate: MethodDefinition<_heddle_v1_ReplicateShard, _heddle_v1_ShardCheckpoint, _heddle_v1_ReplicateShard__Output, _heddle_v1_ShardCheckpoint__Output>
  Restore: MethodDefinition<_heddle_v1_RestoreShard, _heddle_v1_ShardStatus, _heddle_v1_RestoreShard__Output, _heddle_v1_ShardStatus__Output>
  Status: MethodDefinition<_heddle_v1_ShardId, _heddle_v1_ShardStatus, _heddle_v1_ShardId__Output, _heddle_v1_ShardStatus__Output>
}

import type {
  CheckpointShard,
  CheckpointShard__Output,
} from "@heddle/contracts/generated/heddle/v1/CheckpointShard";
import type {
  CloseShardReply,
  CloseShardReply__Output,
} from "@heddle/contracts/generated/heddle/v1/CloseShardReply";
import type {
  ExportShard,
  ExportShard__Output,
} from "@heddle/contracts/generated/heddle/v1/ExportShard";
import type {
  ListShardCheckpoints,
  ListShardCheckpoints__Output,
} from "@heddle/contracts/generated/heddle/v1/ListShardCheckpoints";
import type { NormPart, NormPart__Output } from "@heddle/contracts/generated/heddle/v1/NormPart";
import type { NormTotal, NormTotal__Output } from "@heddle/contracts/generated/heddle/v1/NormTotal";
import type { OpenShard, OpenShard__Output } from "@heddle/contracts/generated/heddle/v1/OpenShard";
import type {
  ParameterChunk,
  ParameterChunk__Output,
} from "@heddle/contracts/generated/heddle/v1/ParameterChunk";
import type {
  PullParameters,
  PullParameters__Output,
} from "@heddle/contracts/generated/heddle/v1/PullParameters";
import type {
  PushParameters,
  PushParameters__Output,
} from "@heddle/contracts/generated/heddle/v1/PushParameters";
import type { PushReply, PushReply__Output } from "@heddle/contracts/generated/heddle/v1/PushReply";
import type {
  ReplicateShard,
  ReplicateShard__Output,
} from "@heddle/contracts/generated/heddle/v1/ReplicateShard";
import type {
  RestoreShard,
  RestoreShard__Output,
} from "@heddle/contracts/generated/heddle/v1/RestoreShard";
import type {
  ShardCheckpoint,
  ShardCheckpoint__Output,
} from "@heddle/contracts/generated/heddle/v1/ShardCheckpoint";
import type {
  ShardCheckpointNames,
  ShardCheckpointNames__Output,
} from "@heddle/contracts/generated/heddle/v1/ShardCheckpointNames";
import type { ShardId, ShardId__Output } from "@heddle/contracts/generated/heddle/v1/ShardId";
import type {
  ShardMember,
  ShardMember__Output,
} from "@heddle/contracts/generated/heddle/v1/ShardMember";
import type {
  ShardMemberClock,
  ShardMemberClock__Output,
} from "@heddle/contracts/generated/heddle/v1/ShardMemberClock";
import type {
  ShardStatus,
  ShardStatus__Output,
} from "@heddle/contracts/generated/heddle/v1/ShardStatus";
import type { TakePart, TakePart__Output } from "@heddle/contracts/generated/heddle/v1/TakePart";
import { method, parameterShardsService, partSourceService } from "@heddle/rpc/proto";

/** The calls of proto/parameters.proto, for their clients. */
export const shardMethods = {
  open: shards<OpenShard, OpenShard__Output, ShardStatus, ShardStatus__Output>("Open"),
  status: shards<ShardId, ShardId__Output, ShardStatus, ShardStatus__Output>("Status"),
  close: shards<ShardId, ShardId__Output, CloseShardReply, CloseShardReply__Output>("Close"),
  changeMember: shards<
    ShardMember,
    ShardMember__Output,
    ShardMemberClock,
    ShardMemberClock__Output
  >("ChangeMember"),
  checkpoint: shards<
    CheckpointShard,
    CheckpointShard__Output,
    ShardCheckpoint,
    ShardCheckpoint__Output
  >("Checkpoint"),
  listCheckpoints: shards<
    ListShardCheckpoints,
    ListShardCheckpoints__Output,
    ShardCheckpointNames,
    ShardCheckpointNames__Output
  >("ListCheckpoints"),
  restore: shards<RestoreShard, RestoreShard__Output, ShardStatus, ShardStatus__Output>("Restore"),
  pull: shards<PullParameters, PullParameters__Output, ParameterChunk, ParameterChunk__Output>(
    "Pull",
  ),
  push: shards<PushParameters, PushParameters__Output, PushReply, PushReply__Output>("Push"),
  addNorm: shards<NormPart, NormPart__Output, NormTotal, NormTotal__Output>("AddNorm"),
  exportShard: shards<ExportShard, ExportShard__Output, ParameterChunk, ParameterChunk__Output>(
    "Export",
  ),
  replicate: shards<
    ReplicateShard,
    ReplicateShard__Output,
    ShardCheckpoint,
    ShardCheckpoint__Output
  >("Replicate"),
};

/** The call by which a server fetches a part from a worker over gRPC. */
export const takeMethod = method<
  TakePart,
  TakePart__Output,
  ParameterChunk,
  ParameterChunk__Output
>(partSourceService, "Take");

function shards<Req, ReqOut, Res, ResOut>(name: string) {
  return method<Req, ReqOut, Res, ResOut>(parameterShardsService, name);
}

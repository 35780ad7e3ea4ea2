import { once } from "node:events";
import type { Metadata, ServerWritableStream } from "@grpc/grpc-js";
import { SerialQueue } from "@heddle/base/async/serial-queue";
import { AppError } from "@heddle/base/errors";
import type { CheckpointJobs } from "@heddle/contracts/generated/heddle/v1/CheckpointJobs";
import type { CheckpointShard__Output } from "@heddle/contracts/generated/heddle/v1/CheckpointShard";
import type { CloseShardReply } from "@heddle/contracts/generated/heddle/v1/CloseShardReply";
import type { ExportShard__Output } from "@heddle/contracts/generated/heddle/v1/ExportShard";
import type { ForgetJobCheckpoints__Output } from "@heddle/contracts/generated/heddle/v1/ForgetJobCheckpoints";
import type { ForgetJobReply } from "@heddle/contracts/generated/heddle/v1/ForgetJobReply";
import type { ListShardCheckpoints__Output } from "@heddle/contracts/generated/heddle/v1/ListShardCheckpoints";
import type { LostWorker__Output } from "@heddle/contracts/generated/heddle/v1/LostWorker";
import type { LostWorkerReply } from "@heddle/contracts/generated/heddle/v1/LostWorkerReply";
import type { NormPart__Output } from "@heddle/contracts/generated/heddle/v1/NormPart";
import type { NormTotal } from "@heddle/contracts/generated/heddle/v1/NormTotal";
import type { OpenShard__Output } from "@heddle/contracts/generated/heddle/v1/OpenShard";
import type { ParameterChunk } from "@heddle/contracts/generated/heddle/v1/ParameterChunk";
import type { PullParameters__Output } from "@heddle/contracts/generated/heddle/v1/PullParameters";
import type { PushParameters__Output } from "@heddle/contracts/generated/heddle/v1/PushParameters";
import type { PushReply } from "@heddle/contracts/generated/heddle/v1/PushReply";
import type { ReplicateShard__Output } from "@heddle/contracts/generated/heddle/v1/ReplicateShard";
import type { RestoreShard__Output } from "@heddle/contracts/generated/heddle/v1/RestoreShard";
import type { ShardCheckpoint } from "@heddle/contracts/generated/heddle/v1/ShardCheckpoint";
import type { ShardCheckpointNames } from "@heddle/contracts/generated/heddle/v1/ShardCheckpointNames";
import type { ShardId__Output } from "@heddle/contracts/generated/heddle/v1/ShardId";
import type { ShardMember__Output } from "@heddle/contracts/generated/heddle/v1/ShardMember";
import type { ShardMemberClock } from "@heddle/contracts/generated/heddle/v1/ShardMemberClock";
import type { ShardStatus } from "@heddle/contracts/generated/heddle/v1/ShardStatus";
import { NodeAgent } from "@heddle/node-agent/node-agent";
import { parameterChunks } from "@heddle/parameters/data-plane/data-route";
import { shardMethods } from "@heddle/parameters/shards/shard-methods";
import { decodeShard, type ShardSpec } from "@heddle/parameters/shards/shard-spec";
import { bulkChannelOptions } from "@heddle/rpc/channel-options";
import { checkClaims, type JobClaims, TICKET_SCHEME } from "@heddle/rpc/job-ticket";
import { GrpcCall, type GrpcContext, type StreamContext } from "@heddle/rpc/nest/grpc-call";
import { Peer } from "@heddle/rpc/peer";
import { parameterShardsService } from "@heddle/rpc/proto";
import { Controller, Inject } from "@nestjs/common";
import { pieceBytes, pieceLength } from "./checkpoint/checkpoint-format.ts";
import {
  checkedPiece,
  checkpointedJobs,
  checkpointNames,
  forgetJob,
  forgetOldest,
  piecePath,
  pieceSize,
  readPiece,
  writePiece,
} from "./checkpoint/checkpoint-store.ts";
import { NormExchange } from "./norm-exchange.ts";
import type { ShardHandle } from "./shard/shard-handle.ts";
import { type ShardKey, ShardRegistry } from "./shard-registry.ts";
import { pulledPieces } from "./slab/shard-slab.ts";

/** A slower receiver is disconnected. */
const SEND_MS = 120_000;

/** What the service needs of its node. */
type ServerIdentity = Pick<
  NodeAgent,
  "options" | "credentials" | "address" | "tickets" | "followed"
>;

/** The caller: a task of a job, or a node where there is no ticket. */
interface Caller {
  readonly claims: JobClaims | undefined;
  readonly ticket: string | undefined;
}

/** The job and attempt of a request. */
interface JobRequest {
  readonly id?: ShardId__Output | null;
  readonly open?: { readonly id: ShardId__Output | null } | null;
  readonly jobId?: string;
  readonly attempt?: number | undefined;
}

/** The gRPC service ParameterShards, over the threads of the server's shards. */
@Controller()
export class ShardsController {
  readonly #shards: ShardRegistry;
  readonly #dataDirectory: string;
  readonly #own: ServerIdentity;
  readonly #norms = new NormExchange();
  /** Serializes the deletion of checkpoints for all shards of this server. */
  readonly #forgetting = new SerialQueue();

  constructor(
    @Inject(ShardRegistry) shards: ShardRegistry,
    @Inject(NodeAgent) own: ServerIdentity,
  ) {
    this.#shards = shards;
    this.#dataDirectory = own.options.flags.dataDirectory;
    this.#own = own;
  }

  /** Checks the caller's ticket against the job and attempt of its request. */
  #admit(request: JobRequest, { metadata }: GrpcContext): Caller {
    const caller = this.#callerOf(metadata);
    const { jobId = "", attempt }: JobRequest = request.open?.id ?? request.id ?? request;
    checkClaims(caller.claims, { jobId, attempt });
    return caller;
  }

  /** Refuses tasks of jobs: the method is for masters. */
  #admitNode({ metadata }: GrpcContext): void {
    if (!this.#callerOf(metadata).claims) return;
    throw new AppError("permission_denied", "this is for masters, not for tasks of jobs");
  }

  #callerOf(metadata: Metadata): Caller {
    const shown = metadata.get("authorization")[0];
    const claims = this.#own.tickets.claimsOf(shown);
    this.#checkCluster(claims?.cluster);
    return { claims, ticket: claims && String(shown).slice(TICKET_SCHEME.length) };
  }

  /**
   * Throws `shard_unavailable` for a task of an earlier incarnation of the cluster. Its worker may
   * not know of the new one yet, and must not treat the task's end as its own failure.
   */
  #checkCluster(cluster = ""): void {
    const { followed } = this.#own;
    const refusal = followed.refusalOf(cluster);
    if (refusal !== undefined) {
      this.#shards.refuseStale();
      throw new AppError("shard_unavailable", refusal);
    }
    // Its worker may learn of a restore first. If the write fails the change still applies to this
    // process.
    followed.follow(cluster).catch(() => {});
  }

  @GrpcCall(parameterShardsService, "Open")
  async open(request: OpenShard__Output, context: GrpcContext): Promise<ShardStatus> {
    const caller = this.#admit(request, context);
    return this.#status(await this.#shards.open(this.#specFor(request, caller)));
  }

  /** A job may open shards only on the servers of its ticket. */
  #specFor(request: OpenShard__Output | null, { claims, ticket }: Caller): ShardSpec {
    const spec = decodeShard(request);
    checkClaims(claims, spec, this.#own.address);
    return { ...spec, ticket };
  }

  @GrpcCall(parameterShardsService, "Status")
  async status(id: ShardId__Output, context: GrpcContext): Promise<ShardStatus> {
    this.#admit(id, context);
    return this.#status(this.#shards.find(id));
  }

  async #status({ calls, spec }: ShardHandle): Promise<ShardStatus> {
    const { jobId, attempt, shard } = spec;
    const figures = await calls.call("figures", undefined);
    const id = { jobId, attempt, shard };
    return { ...figures, id, refusedStale: this.#shards.refusedStale(jobId) };
  }

  @GrpcCall(parameterShardsService, "Close")
  async close(id: ShardId__Output, context: GrpcContext): Promise<CloseShardReply> {
    this.#admit(id, context);
    await this.#shards.close(id);
    return {};
  }

  @GrpcCall(parameterShardsService, "ChangeMember")
  async changeMember(
    request: ShardMember__Output,
    context: GrpcContext,
  ): Promise<ShardMemberClock> {
    this.#admit(request, context);
    const { id, ...member } = request;
    return { clock: await this.#find(id).calls.call("member", member) };
  }

  @GrpcCall(parameterShardsService, "ReleaseWorker")
  async releaseWorker(lost: LostWorker__Output, context: GrpcContext): Promise<LostWorkerReply> {
    this.#admitNode(context);
    const { rank, incarnation } = lost;
    const left = { rank, incarnation, leaves: true };
    const shards = this.#shards.allOf(lost);
    await Promise.all(shards.map(({ calls }) => calls.call("member", left)));
    return {};
  }

  @GrpcCall(parameterShardsService, "Checkpoint")
  async checkpoint(
    request: CheckpointShard__Output,
    context: GrpcContext,
  ): Promise<ShardCheckpoint> {
    this.#admit(request, context);
    const { id, version, name, keep } = request;
    const { calls, spec } = this.#find(id);
    const path = piecePath(this.#dataDirectory, spec.jobId, name, spec.shard);
    const written = await calls.call("checkpoint", { path, version }, context.signal);
    await this.#forgetting.run(() => forgetOldest(this.#dataDirectory, spec.jobId, keep));
    return { ...written, name, sha256: Buffer.from(written.sha256) };
  }

  @GrpcCall(parameterShardsService, "ListCheckpoints")
  async listCheckpoints(
    request: ListShardCheckpoints__Output,
    context: GrpcContext,
  ): Promise<ShardCheckpointNames> {
    this.#admit(request, context);
    return { names: await checkpointNames(this.#dataDirectory, request.jobId) };
  }

  @GrpcCall(parameterShardsService, "ListCheckpointJobs")
  async listCheckpointJobs(_request: object, context: GrpcContext): Promise<CheckpointJobs> {
    this.#admitNode(context);
    return { jobs: await checkpointedJobs(this.#dataDirectory) };
  }

  @GrpcCall(parameterShardsService, "ForgetJob")
  async forgetJob(
    { jobId }: ForgetJobCheckpoints__Output,
    context: GrpcContext,
  ): Promise<ForgetJobReply> {
    this.#admitNode(context);
    await this.#forgetting.run(() => forgetJob(this.#dataDirectory, jobId));
    return {};
  }

  @GrpcCall(parameterShardsService, "Restore")
  async restore(request: RestoreShard__Output, context: GrpcContext): Promise<ShardStatus> {
    const caller = this.#admit(request, context);
    const { open, name, sources, pieces } = request;
    const handle = await this.#shards.open(this.#specFor(open, caller));
    await handle.calls.call("restore", { name, sources, pieces }, context.signal);
    return this.#status(handle);
  }

  @GrpcCall(parameterShardsService, "Push")
  async push(request: PushParameters__Output, context: GrpcContext): Promise<PushReply> {
    this.#admit(request, context);
    const { id, ...argument } = request;
    return this.#find(id).calls.call("push", argument, context.signal);
  }

  @GrpcCall(parameterShardsService, "AddNorm")
  async addNorm(request: NormPart__Output, context: GrpcContext): Promise<NormTotal> {
    this.#admit(request, context);
    const { id, version, squares } = request;
    const key = keyOf(id);
    // Only shard 0's server is asked: it knows their number and the latest attempt.
    const { spec } = this.#shards.find({ ...key, shard: 0 });
    const shards = spec.servers.length;
    return { squares: await this.#norms.add(key, version, squares, shards, context.signal) };
  }

  @GrpcCall(parameterShardsService, "Replicate")
  async replicate(request: ReplicateShard__Output, context: GrpcContext): Promise<ShardCheckpoint> {
    const { ticket } = this.#admit(request, context);
    const { id, checkpoint, source, keep } = request;
    const { signal } = context;
    const key = keyOf(id);
    const path = piecePath(this.#dataDirectory, key.jobId, checkpoint, key.shard);
    // The job gives the address of the piece: the node's own credentials must not go there.
    const { credentials } = this.#own;
    const shown =
      ticket === undefined
        ? credentials
        : { ticket, authority: credentials.tls?.material.authority };
    const peer = new Peer(source, shown, "parameter-server", bulkChannelOptions);
    try {
      const limited = AbortSignal.any([signal, AbortSignal.timeout(SEND_MS)]);
      const chunks = peer.serverStream(shardMethods.exportShard, { id: key, checkpoint }, limited);
      const { bytes, sha256 } = await writePiece(path, checkedPiece(dataOf(chunks)));
      await this.#forgetting.run(() => forgetOldest(this.#dataDirectory, key.jobId, keep));
      return { name: checkpoint, bytes, sha256: Buffer.from(sha256) };
    } finally {
      peer.close();
    }
  }

  @GrpcCall(parameterShardsService, "Pull")
  async pull(
    request: PullParameters__Output,
    context: StreamContext<PullParameters__Output, ParameterChunk>,
  ): Promise<void> {
    this.#admit(request, context);
    const { call, signal } = context;
    const { id, rank, clock, held, plan } = request;
    const { calls, slab } = this.#find(id);
    const { lease, version } = await calls.call("lease", { rank, clock, plan }, signal);
    const pieces = pulledPieces(slab, version, held);
    const bytes = pieces.reduce((sum, piece) => sum + piece.length, 0);
    try {
      await send(call, parameterChunks(version, bytes, pieces), signal);
    } finally {
      await calls.call("release", { lease, bytes });
    }
  }

  @GrpcCall(parameterShardsService, "Export")
  async export(
    request: ExportShard__Output,
    context: StreamContext<ExportShard__Output, ParameterChunk>,
  ): Promise<void> {
    this.#admit(request, context);
    const { call, signal } = context;
    const { id, checkpoint } = request;
    if (checkpoint === "") return this.#exportLive(call, signal);
    const { jobId, shard } = keyOf(id);
    const path = piecePath(this.#dataDirectory, jobId, checkpoint, shard);
    const totalBytes = await pieceSize(path);
    let offset = 0;
    for await (const data of readPiece(path)) {
      await write(call, { offset, data, totalBytes }, signal);
      offset += data.length;
    }
  }

  async #exportLive(
    call: ServerWritableStream<ExportShard__Output, ParameterChunk>,
    signal: AbortSignal,
  ): Promise<void> {
    const { calls, slab, spec } = this.#find(call.request.id);
    const { lease, version } = await calls.call("lease", { clock: 0 }, signal);
    try {
      const bytes = pieceLength(spec, slab, version);
      const pieces = pieceBytes(spec, slab, version);
      await send(call, parameterChunks(version, bytes, pieces), signal);
    } finally {
      await calls.call("release", { lease, bytes: 0 });
    }
  }

  #find(id: ShardId__Output | null): ShardHandle {
    return this.#shards.find(keyOf(id));
  }
}

function keyOf(id: ShardId__Output | null): ShardKey {
  if (id) return id;
  throw new AppError("invalid_value", "the call names no shard");
}

async function* dataOf(
  chunks: AsyncIterable<{ readonly data: Buffer }>,
): AsyncGenerator<Uint8Array> {
  for await (const { data } of chunks) yield data;
}

/** The stream for the chunks of an answer. */
type ChunkStream = ServerWritableStream<
  PullParameters__Output | ExportShard__Output,
  ParameterChunk
>;

async function send(
  call: ChunkStream,
  chunks: Iterable<ParameterChunk>,
  signal: AbortSignal,
): Promise<void> {
  const limited = AbortSignal.any([signal, AbortSignal.timeout(SEND_MS)]);
  for (const chunk of chunks) await write(call, chunk, limited);
}

/** Messages are copied when they are written, so that memory may change afterwards. */
async function write(call: ChunkStream, chunk: ParameterChunk, signal: AbortSignal): Promise<void> {
  signal.throwIfAborted();
  if (!call.write(chunk)) await once(call, "drain", { signal });
}

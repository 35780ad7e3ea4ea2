import { once } from "node:events";
import type {
  Metadata,
  Server,
  ServerUnaryCall,
  ServerWritableStream,
  sendUnaryData,
} from "@grpc/grpc-js";
import { SerialQueue } from "@heddle/base/async/serial-queue";
import { AppError, toAppError } from "@heddle/base/errors";
import type { CheckpointShard__Output } from "@heddle/contracts/generated/heddle/v1/CheckpointShard";
import type { CloseShardReply } from "@heddle/contracts/generated/heddle/v1/CloseShardReply";
import type { ExportShard__Output } from "@heddle/contracts/generated/heddle/v1/ExportShard";
import type { ForgetJobCheckpoints__Output } from "@heddle/contracts/generated/heddle/v1/ForgetJobCheckpoints";
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
import type { ShardId__Output } from "@heddle/contracts/generated/heddle/v1/ShardId";
import type { ShardMember__Output } from "@heddle/contracts/generated/heddle/v1/ShardMember";
import type { ShardMemberClock } from "@heddle/contracts/generated/heddle/v1/ShardMemberClock";
import type { ShardStatus } from "@heddle/contracts/generated/heddle/v1/ShardStatus";
import { parameterChunks } from "@heddle/parameters/data-plane/data-route";
import { shardMethods } from "@heddle/parameters/shards/shard-methods";
import { decodeShard, type ShardSpec } from "@heddle/parameters/shards/shard-spec";
import { bulkChannelOptions } from "@heddle/rpc/channel-options";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import {
  checkClaims,
  type JobClaims,
  TICKET_SCHEME,
  type TicketVerifier,
} from "@heddle/rpc/job-ticket";
import type { FollowedCluster } from "@heddle/rpc/node/followed-cluster";
import { Peer } from "@heddle/rpc/peer";
import { parameterShardsService } from "@heddle/rpc/proto";
import { toStatus } from "@heddle/rpc/status";
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
import { pulledPieces } from "./shard/shard-slab.ts";
import type { ShardKey, ShardRegistry } from "./shard-registry.ts";

/** A slower receiver is disconnected. */
const SEND_MS = 120_000;

/** A server's credentials, its address for others, and its verifier of tickets. */
interface ServerIdentity {
  readonly credentials: NodeCredentials;
  readonly address: string;
  readonly tickets: TicketVerifier;
  readonly followed: FollowedCluster;
}

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

/** The gRPC service ParameterShards of one server, over the threads of its shards. */
export class ParameterShardsService {
  readonly #shards: ShardRegistry;
  readonly #dataDirectory: string;
  readonly #own: ServerIdentity;
  readonly #norms = new NormExchange();
  /** Serializes the deletion of checkpoints for all shards of this server. */
  readonly #forgetting = new SerialQueue();

  constructor(shards: ShardRegistry, dataDirectory: string, own: ServerIdentity) {
    this.#shards = shards;
    this.#dataDirectory = dataDirectory;
    this.#own = own;
  }

  addTo(server: Server): void {
    const { unary, streamed, nodes } = this.#handlers();
    server.addService(parameterShardsService, {
      open: unary((request: OpenShard__Output, _signal, caller) => this.#open(request, caller)),
      status: unary((id: ShardId__Output) => this.#status(this.#shards.find(id))),
      close: unary((id: ShardId__Output) => this.#close(id)),
      changeMember: unary((request: ShardMember__Output) => this.#changeMember(request)),
      releaseWorker: nodes((request: LostWorker__Output) => this.#releaseWorker(request)),
      checkpoint: unary((request: CheckpointShard__Output, signal) =>
        this.#checkpoint(request, signal),
      ),
      listCheckpoints: unary(async ({ jobId }: ListShardCheckpoints__Output) => ({
        names: await checkpointNames(this.#dataDirectory, jobId),
      })),
      listCheckpointJobs: nodes(async () => ({
        jobs: await checkpointedJobs(this.#dataDirectory),
      })),
      forgetJob: nodes(async ({ jobId }: ForgetJobCheckpoints__Output) => {
        await this.#forgetting.run(() => forgetJob(this.#dataDirectory, jobId));
        return {};
      }),
      restore: unary((request: RestoreShard__Output, signal, caller) =>
        this.#restore(request, signal, caller),
      ),
      push: unary((request: PushParameters__Output, signal) => this.#push(request, signal)),
      addNorm: unary((request: NormPart__Output, signal) => this.#addNorm(request, signal)),
      replicate: unary((request: ReplicateShard__Output, signal, caller) =>
        this.#replicate(request, signal, caller),
      ),
      pull: streamed((call: ServerWritableStream<PullParameters__Output, ParameterChunk>, signal) =>
        this.#pull(call, signal),
      ),
      export: streamed((call: ServerWritableStream<ExportShard__Output, ParameterChunk>, signal) =>
        this.#export(call, signal),
      ),
    });
  }

  /** Every method passes through one of these, which check a job's ticket against the request. */
  #handlers() {
    const callerOf = (metadata: Metadata): Caller => {
      const shown = metadata.get("authorization")[0];
      const claims = this.#own.tickets.claimsOf(shown);
      this.#checkCluster(claims?.cluster);
      return { claims, ticket: claims && String(shown).slice(TICKET_SCHEME.length) };
    };
    const admit = (request: JobRequest, metadata: Metadata): Caller => {
      const caller = callerOf(metadata);
      const { jobId = "", attempt }: JobRequest = request.open?.id ?? request.id ?? request;
      checkClaims(caller.claims, { jobId, attempt });
      return caller;
    };
    const unary = <Request extends object, Reply>(
      answer: (request: Request, signal: AbortSignal, caller: Caller) => Promise<Reply>,
    ) =>
      unaryCall<Request, Reply>((request, signal, metadata) =>
        answer(request, signal, admit(request, metadata)),
      );
    const nodes = <Request extends object, Reply>(answer: (request: Request) => Promise<Reply>) =>
      unaryCall<Request, Reply>(async (request, _signal, metadata) => {
        if (!callerOf(metadata).claims) return answer(request);
        throw new AppError("permission_denied", "this is for masters, not for tasks of jobs");
      });
    const streamed = <Request extends object, Reply>(
      answer: (call: ServerWritableStream<Request, Reply>, signal: AbortSignal) => Promise<void>,
    ) =>
      streamedCall<Request, Reply>(async (call, signal) => {
        admit(call.request, call.metadata);
        await answer(call, signal);
      });
    return { unary, nodes, streamed };
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

  async #open(request: OpenShard__Output, caller: Caller): Promise<ShardStatus> {
    return this.#status(await this.#shards.open(this.#specFor(request, caller)));
  }

  /** A job may open shards only on the servers of its ticket. */
  #specFor(request: OpenShard__Output | null, { claims, ticket }: Caller): ShardSpec {
    const spec = decodeShard(request);
    checkClaims(claims, spec, this.#own.address);
    return { ...spec, ticket };
  }

  async #status({ calls, spec }: ShardHandle): Promise<ShardStatus> {
    const { jobId, attempt, shard } = spec;
    const figures = await calls.call("figures", undefined);
    const id = { jobId, attempt, shard };
    return { ...figures, id, refusedStale: this.#shards.refusedStale(jobId) };
  }

  async #close(id: ShardId__Output): Promise<CloseShardReply> {
    await this.#shards.close(id);
    return {};
  }

  async #changeMember({ id, ...member }: ShardMember__Output): Promise<ShardMemberClock> {
    return { clock: await this.#find(id).calls.call("member", member) };
  }

  async #releaseWorker(lost: LostWorker__Output): Promise<LostWorkerReply> {
    const { rank, incarnation } = lost;
    const left = { rank, incarnation, leaves: true };
    const shards = this.#shards.allOf(lost);
    await Promise.all(shards.map(({ calls }) => calls.call("member", left)));
    return {};
  }

  async #checkpoint(
    { id, version, name, keep }: CheckpointShard__Output,
    signal: AbortSignal,
  ): Promise<ShardCheckpoint> {
    const { calls, spec } = this.#find(id);
    const path = piecePath(this.#dataDirectory, spec.jobId, name, spec.shard);
    const written = await calls.call("checkpoint", { path, version }, signal);
    await this.#forgetting.run(() => forgetOldest(this.#dataDirectory, spec.jobId, keep));
    return { ...written, name, sha256: Buffer.from(written.sha256) };
  }

  async #restore(
    { open, name, sources, pieces }: RestoreShard__Output,
    signal: AbortSignal,
    caller: Caller,
  ): Promise<ShardStatus> {
    const handle = await this.#shards.open(this.#specFor(open, caller));
    await handle.calls.call("restore", { name, sources, pieces }, signal);
    return this.#status(handle);
  }

  async #push(request: PushParameters__Output, signal: AbortSignal): Promise<PushReply> {
    const { id, ...argument } = request;
    return this.#find(id).calls.call("push", argument, signal);
  }

  async #addNorm(
    { id, version, squares }: NormPart__Output,
    signal: AbortSignal,
  ): Promise<NormTotal> {
    const key = keyOf(id);
    // Only shard 0's server is asked: it knows their number and the latest attempt.
    const { spec } = this.#shards.find({ ...key, shard: 0 });
    const shards = spec.servers.length;
    return { squares: await this.#norms.add(key, version, squares, shards, signal) };
  }

  async #replicate(
    { id, checkpoint, source, keep }: ReplicateShard__Output,
    signal: AbortSignal,
    { ticket }: Caller,
  ): Promise<ShardCheckpoint> {
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

  async #pull(
    call: ServerWritableStream<PullParameters__Output, ParameterChunk>,
    signal: AbortSignal,
  ): Promise<void> {
    const { id, rank, clock, held, plan } = call.request;
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

  async #export(
    call: ServerWritableStream<ExportShard__Output, ParameterChunk>,
    signal: AbortSignal,
  ): Promise<void> {
    const { id, checkpoint } = call.request;
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

/** A call with one reply; its signal is aborted when the caller cancels or dies. */
function unaryCall<Request, Reply>(
  answer: (request: Request, signal: AbortSignal, metadata: Metadata) => Promise<Reply>,
): (call: ServerUnaryCall<Request, Reply>, reply: sendUnaryData<Reply>) => void {
  return (call, reply) => {
    const signal = cancellation(call);
    // A synchronous throw is reported like a rejection.
    Promise.resolve()
      .then(() => answer(call.request, signal, call.metadata))
      .then(
        (value) => reply(null, value),
        (error: unknown) => reply(toStatus(toAppError(error))),
      );
  };
}

function streamedCall<Request, Reply>(
  answer: (call: ServerWritableStream<Request, Reply>, signal: AbortSignal) => Promise<void>,
): (call: ServerWritableStream<Request, Reply>) => void {
  return (call) => {
    answer(call, cancellation(call)).then(
      () => call.end(),
      (error: unknown) => call.emit("error", toStatus(toAppError(error))),
    );
  };
}

function cancellation(call: { once(event: "cancelled", then: () => void): unknown }): AbortSignal {
  const gone = new AbortController();
  call.once("cancelled", () => gone.abort(new AppError("cancelled", "the caller hung up")));
  return gone.signal;
}

import type { MessagePort } from "node:worker_threads";
import { answerCalls } from "@heddle/base/async/thread-calls";
import { type DataAnswer, DataListener } from "@heddle/parameters/data-plane/data-listener";
import { pushAnswer, readPush } from "@heddle/parameters/data-plane/push-announcement";
import type { ShardSpec } from "@heddle/parameters/shards/shard-spec";
import type { CallerCredentials, NodeCredentials } from "@heddle/rpc/credentials";
import { fromPlainCredentials } from "@heddle/rpc/plain-credentials";
import { pieceBytes } from "../checkpoint/checkpoint-format.ts";
import { writePiece } from "../checkpoint/checkpoint-store.ts";
import { RefusalCounts } from "../refusal-counts.ts";
import { pulledPieces, ShardSlab, slabPlan } from "../slab/shard-slab.ts";
import type { NormRequests } from "./norm-requests.ts";
import { PartFetcher } from "./part-fetcher.ts";
import { Shard } from "./shard.ts";
import type { ShardApi, ShardFigures, ShardStart } from "./shard-api.ts";
import type { GateRelease } from "./update-gate.ts";

// What calls others over gRPC is imported where a shard first needs it, which most never do: loading
// gRPC is half of a thread's start.

/**
 * Serves one shard: its slab, data connections and rules. Answers the calls that come through the
 * port, whose first message is the memory of the slab.
 */
export async function serveShard(start: ShardStart, port: MessagePort): Promise<void> {
  const shard = new ServedShard(start, await fromPlainCredentials(start.credentials));
  await shard.listen();
  answerCalls(port, shard.api);
  port.postMessage({ call: 0, result: shard.memory });
}

interface PullRequest {
  readonly rank: number;
  readonly clock: number;
  readonly held: number;
  readonly plan: string;
}

class ServedShard {
  readonly #start: ShardStart;
  readonly #credentials: NodeCredentials;
  readonly #slab: ShardSlab;
  readonly #taker: PartFetcher;
  readonly #shard: Shard;
  readonly #listener: DataListener;
  readonly #leases = new Map<number, GateRelease>();
  #lastLease = 0;
  #norms: Promise<NormRequests> | undefined;
  #dataAddress = "";
  #dataSocket = "";

  constructor(start: ShardStart, credentials: NodeCredentials) {
    const { spec } = start;
    this.#start = start;
    this.#credentials = credentials;
    this.#slab = new ShardSlab(slabPlan(spec));
    this.#taker = new PartFetcher(credentials.tls !== undefined);
    const refusals = new RefusalCounts(start.refusals);
    this.#shard = new Shard(spec, this.#slab, {
      taker: this.#taker,
      exchangeNorm: this.#exchangeNorm,
      onInvalid: () => refusals.add("invalid"),
    });
    this.#listener = new DataListener({
      token: spec.jobToken,
      answer: (request, signal) => this.#answer(request, signal),
      onRefused: (reason) => refusals.add(reason),
    });
  }

  get memory() {
    return this.#slab.memory;
  }

  async listen(): Promise<void> {
    const { host, socketPath } = this.#start;
    // Where nodes use TLS no data crosses machines in the clear.
    this.#dataAddress = this.#credentials.tls ? "" : await this.#listener.listenTcp(host);
    this.#dataSocket = await this.#listener.listenUnix(socketPath);
  }

  readonly api: ShardApi = {
    renew: async (material) => this.#credentials.tls?.update(material),
    reopen: async (spec) => {
      await this.#shard.reopen(spec);
      this.#listener.changeToken(spec.jobToken);
    },
    figures: async () => this.#figures(),
    push: (argument, signal) => this.#shard.push(argument, signal),
    lease: async ({ rank, clock, plan }, signal) => {
      if (rank !== undefined) this.#shard.checkPlan(plan);
      const { version, release } = await this.#shard.read(rank, clock, signal);
      this.#leases.set(++this.#lastLease, release);
      return { lease: this.#lastLease, version };
    },
    release: async ({ lease, bytes }) => {
      this.#leases.get(lease)?.();
      this.#leases.delete(lease);
      this.#shard.counts.bytesPulled += bytes;
    },
    member: async ({ rank, leaves, incarnation, certificate = "" }) => {
      const clock = await this.#shard.member(rank, leaves, incarnation);
      if (!leaves && certificate !== "") this.#taker.trust(rank, certificate);
      return clock;
    },
    checkpoint: async ({ path, version }, signal) => {
      const release = await this.#shard.readAt(version, signal);
      try {
        const pieces = pieceBytes(this.#shard.spec, this.#slab, version);
        return { version, ...(await writePiece(path, pieces)) };
      } finally {
        release();
      }
    },
    restore: async (source, signal) => {
      const { restoreShard } = await import("../checkpoint/restore-shard.ts");
      return this.#shard.restore(() => {
        const { spec } = this.#shard;
        const credentials = this.#callingFor(spec);
        return restoreShard(spec, this.#slab, { ...source, credentials }, signal);
      });
    },
  };

  #figures(): ShardFigures {
    const shard = this.#shard;
    return {
      ...shard.counts,
      version: shard.version,
      begunVersion: shard.begunVersion,
      elements: this.#slab.elements,
      stragglers: shard.stragglers,
      workers: shard.workers,
      departures: shard.departures,
      refusedUnauthenticated: this.#listener.unauthenticated,
      ready: shard.ready,
      dataAddress: this.#dataAddress,
      dataSocket: this.#dataSocket,
      dataPath: this.#taker.path,
    };
  }

  /** A worker's request over the fast path: to fetch its part, or to pull parameters. */
  async #answer(request: object, signal: AbortSignal): Promise<DataAnswer> {
    const { push } = request as { readonly push?: object };
    if (push) return pushAnswer(await this.#shard.push(readPush(push), signal));
    return this.#answerPull(request as PullRequest, signal);
  }

  async #answerPull(
    { rank, clock, held, plan }: PullRequest,
    signal: AbortSignal,
  ): Promise<DataAnswer> {
    this.#shard.checkPlan(plan);
    const { version, release } = await this.#shard.read(rank, clock, signal);
    const pieces = pulledPieces(this.#slab, version, held);
    const bytes = pieces.reduce((sum, piece) => sum + piece.length, 0);
    this.#shard.counts.bytesPulled += bytes;
    return { version, bytes, pieces, release };
  }

  /**
   * The credentials for other servers on behalf of a job: its own ticket. The job gives their
   * addresses, so the node's credentials must not go there.
   */
  readonly #callingFor = ({ ticket }: ShardSpec): CallerCredentials => {
    const { tls } = this.#credentials;
    return ticket === undefined
      ? this.#credentials
      : { ticket, authority: tls?.material.authority };
  };

  /** Adds this shard's sum of squares to the others', and returns the norm over all shards. */
  readonly #exchangeNorm = async (
    spec: ShardSpec,
    version: number,
    squares: number,
    signal: AbortSignal,
  ): Promise<number> => {
    if (spec.servers.length === 1) return squares;
    this.#norms ??= import("./norm-requests.ts").then(
      ({ NormRequests }) => new NormRequests(this.#callingFor),
    );
    return (await this.#norms).exchange(spec, version, squares, signal);
  };
}

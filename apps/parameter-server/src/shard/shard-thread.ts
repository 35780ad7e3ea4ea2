import { parentPort, workerData } from "node:worker_threads";
import { type DataAnswer, DataListener } from "@heddle/parameters/data-plane/data-listener";
import { pushAnswer, readPush } from "@heddle/parameters/data-plane/push-announcement";
import type { ShardSpec } from "@heddle/parameters/shards/shard-spec";
import { answerCalls } from "@heddle/parameters/thread-calls";
import type { CallerCredentials } from "@heddle/rpc/credentials";
import { fromPlainCredentials } from "@heddle/rpc/plain-credentials";
import { pieceBytes } from "../checkpoint/checkpoint-format.ts";
import { writePiece } from "../checkpoint/checkpoint-store.ts";
import { RefusalCounts } from "../refusal-counts.ts";
import { pulledPieces, ShardSlab, slabPlan } from "../slab/shard-slab.ts";
import type { NormRequests } from "./norm-requests.ts";
import { PartFetcher } from "./part-fetcher.ts";
import { Shard } from "./shard.ts";
import type { ShardApi, ShardStart } from "./shard-api.ts";
import type { GateRelease } from "./update-gate.ts";

// The thread of one shard: its slab, data connections and rules. The process's main thread calls it
// by messages and shares the slab's memory. What calls others over gRPC is imported where a shard
// first needs it, which most never do: loading gRPC is half of a thread's start.

const start = workerData as ShardStart;
const port = parentPort;
if (!port) throw new Error("a shard's thread is started by the parameter server");

const slab = new ShardSlab(slabPlan(start.spec));
const credentials = await fromPlainCredentials(start.credentials);
const { tls } = credentials;
const taker = new PartFetcher(tls !== undefined);
const refusals = new RefusalCounts(start.refusals);
const onInvalid = () => refusals.add("invalid");
const shard = new Shard(start.spec, slab, { taker, exchangeNorm, onInvalid });
const leases = new Map<number, GateRelease>();
let lastLease = 0;
let norms: Promise<NormRequests> | undefined;

const listener = new DataListener({
  token: start.spec.jobToken,
  answer,
  onRefused: (reason) => refusals.add(reason),
});
// Where nodes use TLS no data crosses machines in the clear.
const dataAddress = tls ? "" : await listener.listenTcp(start.host);
const dataSocket = await listener.listenUnix(start.socketPath);

const api: ShardApi = {
  renew: async (material) => tls?.update(material),
  reopen: async (spec) => {
    await shard.reopen(spec);
    listener.changeToken(spec.jobToken);
  },
  figures: async () => ({
    ...shard.counts,
    version: shard.version,
    begunVersion: shard.begunVersion,
    elements: slab.elements,
    stragglers: shard.stragglers,
    workers: shard.workers,
    departures: shard.departures,
    refusedUnauthenticated: listener.unauthenticated,
    ready: shard.ready,
    dataAddress,
    dataSocket,
    dataPath: taker.path,
  }),
  push: (argument, signal) => shard.push(argument, signal),
  lease: async ({ rank, clock, plan }, signal) => {
    if (rank !== undefined) shard.checkPlan(plan);
    const { version, release } = await shard.read(rank, clock, signal);
    leases.set(++lastLease, release);
    return { lease: lastLease, version };
  },
  release: async ({ lease, bytes }) => {
    leases.get(lease)?.();
    leases.delete(lease);
    shard.counts.bytesPulled += bytes;
  },
  member: async ({ rank, leaves, incarnation, certificate = "" }) => {
    const clock = await shard.member(rank, leaves, incarnation);
    if (!leaves && certificate !== "") taker.trust(rank, certificate);
    return clock;
  },
  checkpoint: async ({ path, version }, signal) => {
    const release = await shard.readAt(version, signal);
    try {
      return { version, ...(await writePiece(path, pieceBytes(shard.spec, slab, version))) };
    } finally {
      release();
    }
  },
  restore: async (source, signal) => {
    const { restoreShard } = await import("../checkpoint/restore-shard.ts");
    return shard.restore(() =>
      restoreShard(shard.spec, slab, { ...source, credentials: callingFor(shard.spec) }, signal),
    );
  },
};
answerCalls(port, api);
port.postMessage({ call: 0, result: slab.memory });

interface PullRequest {
  readonly rank: number;
  readonly clock: number;
  readonly held: number;
  readonly plan: string;
}

/** A worker's request over the fast path: to fetch its part, or to pull parameters. */
async function answer(request: object, signal: AbortSignal): Promise<DataAnswer> {
  const { push } = request as { readonly push?: object };
  if (push) return pushAnswer(await shard.push(readPush(push), signal));
  return answerPull(request as PullRequest, signal);
}

async function answerPull(
  { rank, clock, held, plan }: PullRequest,
  signal: AbortSignal,
): Promise<DataAnswer> {
  shard.checkPlan(plan);
  const { version, release } = await shard.read(rank, clock, signal);
  const pieces = pulledPieces(slab, version, held);
  const bytes = pieces.reduce((sum, piece) => sum + piece.length, 0);
  shard.counts.bytesPulled += bytes;
  return { version, bytes, pieces, release };
}

/**
 * The credentials for other servers on behalf of a job: its own ticket. The job gives their
 * addresses, so the node's credentials must not go there.
 */
function callingFor({ ticket }: ShardSpec): CallerCredentials {
  if (ticket !== undefined) return { ticket, authority: tls?.material.authority };
  return credentials;
}

/** The norm over all shards of the squares of this one. */
async function exchangeNorm(
  spec: ShardSpec,
  version: number,
  squares: number,
  signal: AbortSignal,
): Promise<number> {
  if (spec.servers.length === 1) return squares;
  norms ??= import("./norm-requests.ts").then(({ NormRequests }) => new NormRequests(callingFor));
  return (await norms).exchange(spec, version, squares, signal);
}

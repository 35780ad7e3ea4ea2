import { retry } from "@heddle/base/async/retry";
import { AppError } from "@heddle/base/errors";
import { shardMethods } from "@heddle/parameters/shards/shard-methods";
import type { ShardSpec } from "@heddle/parameters/shards/shard-spec";
import type { CallerCredentials } from "@heddle/rpc/credentials";
import { Peer } from "@heddle/rpc/peer";

const NORM_MS = 60_000;
const BACKOFF = { baseMs: 20, maxMs: 1_000 };

/** Has a job's first server add up the squares of its shards. */
export class NormRequests {
  readonly #callingFor: (spec: ShardSpec) => CallerCredentials;
  #first: { readonly peer: Peer; readonly attempt: number } | undefined;

  constructor(callingFor: (spec: ShardSpec) => CallerCredentials) {
    this.#callingFor = callingFor;
  }

  /** Shard 0's server adds up; while it is unreachable the update waits. */
  async exchange(
    spec: ShardSpec,
    version: number,
    squares: number,
    signal: AbortSignal,
  ): Promise<number> {
    const { jobId, attempt, shard, servers } = spec;
    const request = { id: { jobId, attempt, shard }, version, squares };
    const add = () => {
      const peer = this.#firstServer(servers[0] ?? "", spec);
      return peer.unary(shardMethods.addNorm, request, { deadlineMs: NORM_MS, signal });
    };
    const isPassing = (error: unknown) => error instanceof AppError && error.retryable;
    return (await retry(add, { backoff: BACKOFF, signal, isPassing })).squares;
  }

  /** One connection, kept while the job's first server stays the same. */
  #firstServer(address: string, spec: ShardSpec): Peer {
    const first = this.#first;
    if (first?.peer.address === address && first.attempt === spec.attempt) return first.peer;
    first?.peer.close();
    const peer = new Peer(address, this.#callingFor(spec), "parameter-server");
    this.#first = { peer, attempt: spec.attempt };
    return peer;
  }
}

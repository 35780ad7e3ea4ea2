import { AppError } from "@heddle/base/errors";
import { type CopyingSink, DataRoute } from "@heddle/parameters/data-route";
import { takeMethod } from "@heddle/parameters/shard-methods";
import type { ShardSpec } from "@heddle/parameters/shard-spec";
import { bulkChannelOptions } from "@heddle/rpc/channel-options";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import { Peer } from "@heddle/rpc/peer";

/** A part that a worker has announced. */
export interface AnnouncedPart {
  readonly rank: number;
  readonly clock: number;
  /** Where it can be taken from, the best first. */
  readonly sources: readonly string[];
}

/** A part that does not come within this is given up, and may be pushed again. */
const TAKE_MS = 120_000;
const TRIES = 2;

/** Takes parts from workers: one route to each, by unix socket, TCP or gRPC, whichever works. */
export class PartTaker {
  readonly #credentials: NodeCredentials;
  readonly #routes = new Map<number, DataRoute>();
  readonly #peers = new Map<string, Peer>();
  #path = "";

  constructor(credentials: NodeCredentials) {
    this.#credentials = credentials;
  }

  /** How the latest part came. */
  get path(): string {
    return this.#path;
  }

  /**
   * Gives the part's bytes to a sink, a new one for each try. Rejects with `unavailable` where the
   * worker cannot be reached, and with the sink's own error.
   */
  async take(
    spec: ShardSpec,
    part: AnnouncedPart,
    sink: () => CopyingSink,
    signal: AbortSignal,
  ): Promise<number> {
    const { jobId, attempt, shard } = spec;
    const route = this.#route(part.rank);
    const limited = AbortSignal.any([signal, AbortSignal.timeout(TAKE_MS)]);
    for (let tried = 1; ; tried++) {
      try {
        const head = await route.fetch({
          targets: part.sources,
          token: spec.jobToken,
          request: { shard, clock: part.clock },
          sink,
          signal: limited,
          overGrpc: (address, abort) => {
            const request = { id: { jobId, attempt, shard }, clock: part.clock };
            return this.#peer(address).serverStream(takeMethod, request, abort);
          },
        });
        this.#path = route.path;
        return head.bytes;
      } catch (error) {
        // A connection that was kept may be one to a process that is no more.
        const again = error instanceof AppError && error.code === "unavailable" && tried < TRIES;
        if (!again) throw error;
      }
    }
  }

  close(): void {
    for (const route of this.#routes.values()) route.close();
    for (const peer of this.#peers.values()) peer.close();
    this.#routes.clear();
    this.#peers.clear();
  }

  #route(rank: number): DataRoute {
    const known = this.#routes.get(rank) ?? new DataRoute();
    this.#routes.set(rank, known);
    return known;
  }

  #peer(address: string): Peer {
    const known =
      this.#peers.get(address) ??
      new Peer(address, this.#credentials, "worker", bulkChannelOptions);
    this.#peers.set(address, known);
    return known;
  }
}

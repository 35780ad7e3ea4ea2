import { AppError } from "@heddle/base/errors";
import { type CopyingSink, DataRoute } from "@heddle/parameters/data-plane/data-route";
import { takeMethod } from "@heddle/parameters/shards/shard-methods";
import type { ShardSpec } from "@heddle/parameters/shards/shard-spec";
import { bulkChannelOptions } from "@heddle/rpc/channel-options";
import { Peer } from "@heddle/rpc/peer";

/** A part that a worker has announced. */
export interface AnnouncedPart {
  readonly rank: number;
  readonly clock: number;
  /** Addresses of the part, the best first. */
  readonly sources: readonly string[];
}

/** A part that does not arrive within this is abandoned, and may be pushed again. */
const TAKE_MS = 120_000;
const TRIES = 2;
const MAX_CERTIFICATE_LENGTH = 4_096;

/** Fetches parts from workers: one route to each, by unix socket, TCP or gRPC, whichever works. */
export class PartFetcher {
  /** By rank: the certificate of a worker's gRPC server where nodes use TLS. */
  readonly #certificates = new Map<number, string>();
  readonly #isEncrypted: boolean;
  readonly #routes = new Map<number, DataRoute>();
  readonly #peers = new Map<string, Peer>();
  #path = "";

  constructor(isEncrypted: boolean) {
    this.#isEncrypted = isEncrypted;
  }

  /** A rank has joined; its server has this certificate (PEM). */
  trust(rank: number, certificate: string): void {
    if (certificate.length > MAX_CERTIFICATE_LENGTH) {
      const message = `a task's certificate has ${certificate.length} characters: ${MAX_CERTIFICATE_LENGTH} are the most`;
      throw new AppError("invalid_value", message);
    }
    this.#certificates.set(rank, certificate);
  }

  /** The path of the latest part. */
  get path(): string {
    return this.#path;
  }

  /**
   * Passes the part's bytes to a sink, a new one for each try. Rejects with `unavailable` where the
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
            const peer = this.#peer(address, part.rank, spec.jobToken);
            return peer.serverStream(takeMethod, request, abort);
          },
        });
        this.#path = route.path;
        return head.bytes;
      } catch (error) {
        // A kept connection may be to a process that has ended.
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

  /**
   * The peer is a task, not a node: it receives the attempt's token and no credentials of this
   * server.
   */
  #peer(address: string, rank: number, jobToken: Uint8Array): Peer {
    const certificate = this.#isEncrypted ? (this.#certificates.get(rank) ?? "") : undefined;
    if (certificate === "") {
      throw new AppError("precondition_failed", `rank ${rank} has sent no certificate`);
    }
    const shown = { jobToken: Buffer.from(jobToken).toString("hex"), certificate };
    const key = [rank, address, shown.jobToken, certificate].join();
    for (const [other, peer] of this.#peers) {
      if (other === key) return peer;
      // An earlier task of the rank: its parts are not accepted any more.
      if (!other.startsWith(`${rank},`)) continue;
      peer.close();
      this.#peers.delete(other);
    }
    const peer = new Peer(address, shown, "worker", bulkChannelOptions);
    this.#peers.set(key, peer);
    return peer;
  }
}

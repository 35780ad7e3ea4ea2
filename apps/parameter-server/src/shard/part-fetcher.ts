import { AppError } from "@heddle/base/errors";
import type { ParameterChunk__Output } from "@heddle/contracts/generated/heddle/v1/ParameterChunk";
import { type CopyingSink, DataRoute } from "@heddle/parameters/data-plane/data-route";
import type { ShardSpec } from "@heddle/parameters/shards/shard-spec";
import type { PartPeers } from "./part-peers.ts";

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
  /** Keyed by rank: the certificate of a worker's gRPC server where nodes use TLS. */
  readonly #certificates = new Map<number, string>();
  readonly #isEncrypted: boolean;
  readonly #routes = new Map<number, DataRoute>();
  #peers: Promise<PartPeers> | undefined;
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
    const { shard } = spec;
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
          overGrpc: (address, abort) => this.#overGrpc(spec, part, address, abort),
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
    void this.#peers?.then((peers) => peers.close());
    this.#routes.clear();
  }

  #route(rank: number): DataRoute {
    const known = this.#routes.get(rank) ?? new DataRoute();
    this.#routes.set(rank, known);
    return known;
  }

  /** Over gRPC, where no faster path works. */
  async *#overGrpc(
    spec: ShardSpec,
    { rank, clock }: AnnouncedPart,
    address: string,
    signal: AbortSignal,
  ): AsyncGenerator<ParameterChunk__Output> {
    const certificate = this.#isEncrypted ? (this.#certificates.get(rank) ?? "") : undefined;
    this.#peers ??= import("./part-peers.ts").then(({ PartPeers }) => new PartPeers());
    yield* (await this.#peers).take({ rank, address, certificate }, spec, clock, signal);
  }
}

import { earliestStartMs, type Release, releaseUntil } from "../cycle/releases.ts";
import type { GangPlacer, GangRequest } from "../placement/gang.ts";
import { gangFits } from "../placement/gang.ts";

/**
 * Plays the queue forward in strict order, each job waiting for the one before and staying to its
 * bound: a late estimate, since backfill and early ends only bring starts forward.
 */
export class QueuePlayback {
  readonly #placer: GangPlacer;
  #releases: Release[];
  #nowMs: number;

  constructor(placer: GangPlacer, releases: Iterable<Release>, nowMs: number) {
    this.#placer = placer.on(placer.ledger.clone());
    this.#releases = [...releases];
    this.#nowMs = nowMs;
  }

  /** Starts the gang as soon as it fits and says when; undefined, and no change, if it never does. */
  start(gang: GangRequest, runtimeMs: number): number | undefined {
    const { ledger } = this.#placer;
    const startMs = gangFits(ledger, gang)
      ? this.#nowMs
      : earliestStartMs(ledger, this.#releases, gang);
    if (startMs === undefined) return undefined;
    releaseUntil(ledger, this.#releases, startMs);
    this.#releases = this.#releases.filter(({ atMs }) => atMs > startMs);
    const placed = this.#placer.place(gang);
    if (!placed) return undefined;
    this.#releases.push({ atMs: startMs + runtimeMs, shape: gang.shape, ...placed });
    this.#nowMs = startMs;
    return startMs;
  }
}

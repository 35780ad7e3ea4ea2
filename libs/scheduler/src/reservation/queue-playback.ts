import type { Steps } from "@heddle/base/async/steps";
import { earliestStartMs, type Release, releaseUntil } from "../cycle/releases.ts";
import { type GangPlacer, type GangRequest, gangFits } from "../placement/gang.ts";

/**
 * Simulates the queue in strict order: each job waits for the one before and runs to its bound. The
 * estimate is late, because backfill and early ends only advance starts.
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

  /**
   * Starts the gang as soon as it fits and returns the time; undefined, without a change, if never.
   */
  *start(gang: GangRequest, runtimeMs: number): Steps<number | undefined> {
    const { ledger } = this.#placer;
    const startMs = gangFits(ledger, gang)
      ? this.#nowMs
      : yield* earliestStartMs(ledger, this.#releases, gang);
    if (startMs === undefined) return undefined;
    yield* releaseUntil(ledger, this.#releases, startMs);
    this.#releases = this.#releases.filter(({ atMs }) => atMs > startMs);
    const placed = yield* this.#placer.placeInSteps(gang);
    if (!placed) return undefined;
    this.#releases.push({ atMs: startMs + runtimeMs, shape: gang.shape, ...placed });
    this.#nowMs = startMs;
    return startMs;
  }
}

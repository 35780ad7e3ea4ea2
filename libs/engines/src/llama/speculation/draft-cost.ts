/** Before anything was measured, and the bounds: a token never costs nothing, and is tried again. */
const ASSUMED_COST = 0.5;
const LEAST_COST = 0.05;
const MOST_COST = 0.9;

/** What the latest call weighs. */
const LATEST_CALL = 0.2;

/** Drafts must promise this much more than they are measured to cost. */
const MARGIN = 1.1;

/** So many calls without a draft come between two that are timed. */
const CALLS_PER_TIMING = 8;

/**
 * What a further token of a sequence costs in a call, of what the call costs with one token. Where
 * reading the weights takes the time it is little; where the arithmetic does, half and more.
 */
export class DraftCost {
  #singleMs = 0;
  #share = ASSUMED_COST;
  #calls = 0;

  /** In calls of one token. */
  get perToken(): number {
    return Math.min(MOST_COST, Math.max(LEAST_COST, this.#share * MARGIN));
  }

  /** Whether the next call without a draft is to be timed. */
  isTimingDue(): boolean {
    return this.#singleMs === 0 || ++this.#calls >= CALLS_PER_TIMING;
  }

  /** A call of one sequence with so many drafted tokens took this long. */
  measured(drafted: number, ms: number): void {
    if (drafted === 0) {
      this.#calls = 0;
      this.#singleMs = smoothed(this.#singleMs, ms);
      return;
    }
    if (this.#singleMs === 0) return;
    const share = (ms - this.#singleMs) / drafted / this.#singleMs;
    // One slow call, as when the machine stops for a moment, is one call.
    this.#share = smoothed(this.#share, Math.min(1, Math.max(0, share)));
  }
}

function smoothed(before: number, latest: number): number {
  return before === 0 ? latest : before + LATEST_CALL * (latest - before);
}

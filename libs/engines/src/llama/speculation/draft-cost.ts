/** The cost before any was measured, and its bounds: below 1, so that drafts are tried again. */
const ASSUMED_COST = 0.5;
const LEAST_COST = 0.05;
const MOST_COST = 0.9;

/** Weight of the latest call in the averages. */
const LATEST_CALL = 0.2;

/** The measured cost is raised by this factor, so that small gains are not tried. */
const MARGIN = 1.1;

/** Calls without a draft between two that are timed. */
const CALLS_PER_TIMING = 8;

/**
 * The time that one further token of a sequence adds to a call, as a share of a call with one token.
 * It is small where reading the weights takes the time, and 0.5 or more where the arithmetic does.
 */
export class DraftCost {
  #singleMs = 0;
  #share = ASSUMED_COST;
  #calls = 0;

  /** In the time that each of these sequences has of a call with one token of each. */
  perToken(sequences: number): number {
    const share = this.#share * MARGIN;
    const ofCall = (share * sequences) / (1 + share * (sequences - 1));
    return Math.min(MOST_COST, Math.max(LEAST_COST, ofCall));
  }

  /** Whether the next call without a draft is to be timed. */
  isTimingDue(): boolean {
    return this.#singleMs === 0 || ++this.#calls >= CALLS_PER_TIMING;
  }

  /** Takes the time of a call of one sequence with `drafted` further tokens. */
  measured(drafted: number, ms: number): void {
    if (drafted === 0) {
      this.#calls = 0;
      this.#singleMs = smoothed(this.#singleMs, ms);
      return;
    }
    if (this.#singleMs === 0) return;
    const share = (ms - this.#singleMs) / drafted / this.#singleMs;
    // Clamped, so that one call during a stall of the machine does not end drafts.
    this.#share = smoothed(this.#share, Math.min(1, Math.max(0, share)));
  }
}

function smoothed(before: number, latest: number): number {
  return before === 0 ? latest : before + LATEST_CALL * (latest - before);
}

/**
 * Lengths of drafts; with the token before them all but the first are multiples of four, as kernels
 * take rows by fours. With Q8_0 a call of 17 rows costs 1.15 times one of 16.
 */
export const DRAFT_LENGTHS: readonly number[] = [1, 3, 7, 11, 15];

/** The most that is assumed of a length that was not measured. */
const ASSUMED_SHARE = 0.5;

/** Weights of a latest time below and above the one before: stalls of the machine only add to times. */
const FASTER_CALL = 0.3;
const SLOWER_CALL = 0.05;

/** Calls without a draft between two that are timed. */
const CALLS_PER_TIMING = 8;

/** What a timing takes from all shares: a length that stalls made look slow is tried again. */
const FORGOTTEN = 0.01;

/**
 * The time that each further token of a sequence adds to a call, as a share of a call with one token.
 * It is small where reading the weights takes the time, and 0.5 or more where the arithmetic does.
 */
export class DraftCost {
  #singleMs = 0;
  /** By length of a draft, once it was measured. */
  readonly #shares = new Map<number, number>();
  /** The share of the other lengths. */
  #otherShare = ASSUMED_SHARE;
  #calls = 0;

  /** What a sequence's call with the draft takes, as a multiple of its part of one without drafts. */
  of(drafted: number, sequences = 1): number {
    const share = this.#shares.get(drafted) ?? this.#otherShare;
    return 1 + (drafted * share * sequences) / (1 + share * (sequences - 1));
  }

  /** Whether the next call without a draft is to be timed. */
  isTimingDue(): boolean {
    return this.#singleMs === 0 || ++this.#calls >= CALLS_PER_TIMING;
  }

  /** Takes the time of a call of one sequence with `drafted` further tokens. */
  measured(drafted: number, ms: number): void {
    if (drafted === 0) {
      this.#calls = 0;
      this.#singleMs = this.#singleMs === 0 ? ms : smoothed(this.#singleMs, ms);
      for (const [length, share] of this.#shares) {
        this.#shares.set(length, share + FORGOTTEN * (ASSUMED_SHARE - share));
      }
      return;
    }
    if (this.#singleMs === 0) return;
    const share = (ms - this.#singleMs) / drafted / this.#singleMs;
    // Above 1 no draft pays. It is bounded, so that a stall is forgotten soon.
    const bounded = Math.min(1, Math.max(0, share));
    const before = this.#shares.get(drafted);
    this.#shares.set(drafted, before === undefined ? bounded : smoothed(before, bounded));
    this.#otherShare = Math.min(ASSUMED_SHARE, ...this.#shares.values());
  }
}

function smoothed(before: number, latest: number): number {
  return before + (latest < before ? FASTER_CALL : SLOWER_CALL) * (latest - before);
}

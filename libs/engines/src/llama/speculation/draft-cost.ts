/**
 * Lengths of drafts; with the token before them all but the first are multiples of four, as kernels
 * take rows by fours. With Q8_0 a call of 17 rows costs 1.15 times one of 16.
 */
export const DRAFT_LENGTHS: readonly number[] = [1, 3, 7, 11, 15, 23, 31, 47];

/** The most that is assumed of a length that was not measured. */
const ASSUMED_SHARE = 0.5;

/** The most that is learned of a call: no kernel takes more, and a stall of the machine is forgotten soon. */
const MOST_SHARE = 1.5;

/** Weights of a latest time below and above the one before: stalls of the machine only add to times. */
const FASTER_CALL = 0.3;
const SLOWER_CALL = 0.05;

/** Calls without a draft between two that are timed. */
const CALLS_PER_TIMING = 8;

/** What a timing takes from all shares: a length that stalls made look slow is tried again. */
const FORGOTTEN = 0.003;

/** What is known of a length. */
interface Learned {
  readonly share: number;
  /** How much of what was measured is forgotten: a slow call after that counts for more. */
  readonly forgotten: number;
}

/**
 * The time that each further token of a sequence adds to a call, as a share of a call with one token.
 * It is small where reading the weights takes the time, and 0.5 or more where the arithmetic does.
 */
export class DraftCost {
  #singleMs = 0;
  /** Keyed by length of a draft, once it was measured. */
  readonly #learned = new Map<number, Learned>();
  /** The share of the other lengths. */
  #otherShare = ASSUMED_SHARE;
  #calls = 0;

  /** What a sequence's call with the draft takes, as a multiple of its part of one without drafts. */
  of(drafted: number, sequences = 1): number {
    const share = this.#learned.get(drafted)?.share ?? this.#otherShare;
    return 1 + (drafted * share * sequences) / (1 + share * (sequences - 1));
  }

  /** The time of a call of one sequence with the draft; 0 before a call without one was timed. */
  msOf(drafted: number): number {
    return this.#singleMs * this.of(drafted);
  }

  /** Whether a call of one sequence with such a draft was timed. */
  isMeasured(drafted: number): boolean {
    return this.#learned.has(drafted);
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
      for (const [length, { share, forgotten }] of this.#learned) {
        this.#learned.set(length, {
          share: share + FORGOTTEN * (ASSUMED_SHARE - share),
          forgotten: forgotten + FORGOTTEN * (1 - forgotten),
        });
      }
      return;
    }
    if (this.#singleMs === 0) return;
    const latest = (ms - this.#singleMs) / drafted / this.#singleMs;
    const bounded = Math.min(MOST_SHARE, Math.max(0, latest));
    const before = this.#learned.get(drafted);
    const slower = Math.max(SLOWER_CALL, before?.forgotten ?? 0);
    const share = before === undefined ? bounded : smoothed(before.share, bounded, slower);
    this.#learned.set(drafted, { share, forgotten: 0 });
    const shares = Array.from(this.#learned.values(), (known) => known.share);
    this.#otherShare = Math.min(ASSUMED_SHARE, ...shares);
  }
}

function smoothed(before: number, latest: number, slower = SLOWER_CALL): number {
  return before + (latest < before ? FASTER_CALL : slower) * (latest - before);
}

/** Comparisons remembered per number of sequences; the middle one counts. */
const COMPARISONS = 5;

/** Rounds after which the two ways are compared once more: contexts grow and machines change. */
const ROUNDS_BETWEEN_COMPARISONS = 128;

/** What is known of rounds of one number of sequences. */
interface Experience {
  /** The latest comparisons: the time of one call each over that of one call for all. */
  readonly ratios: number[];
  /** Rounds since the last comparison. */
  rounds: number;
}

/** A round: how many sequences it had, and the time per call of one and of all; 0 for not timed. */
interface Round {
  readonly count: number;
  singleMs: number;
  togetherMs: number;
}

/** Before the first round, and after one that says nothing. */
const NO_ROUND: Round = { count: 0, singleMs: 0, togetherMs: 0 };

/** Computes the sequences from index `at` on, `size` of them, in one call. */
type Call = (at: number, size: number) => void;

/**
 * Decides how many sequences decode in one call. Together they read the weights once, which is what
 * counts where memory is the limit. Where arithmetic is, as with few threads, a kernel for several
 * rows can be slower than as many calls for one row each. Which holds depends on the processor, the
 * quantization and the threads, so both are timed as it goes, in rounds that follow each other, for
 * a shared machine is not as fast now as it was.
 */
export class DecodeGrouping {
  readonly #clockMs: () => number;
  readonly #experiences: readonly Experience[];
  #last: Round = NO_ROUND;

  /** The clock may count processor time; only differences matter. */
  constructor(maxSequences: number, clockMs: () => number) {
    this.#clockMs = clockMs;
    this.#experiences = Array.from({ length: maxSequences + 1 }, () => ({ ratios: [], rounds: 0 }));
  }

  /** Runs a round: calls cover each of the `count` sequences once, in order. */
  run(count: number, call: Call): void {
    if (count < 2) {
      // There is nothing to compare, and reading the clock costs more than the rest.
      this.#last = NO_ROUND;
      call(0, count);
      return;
    }
    const experience = this.#experiences[count] as Experience;
    const round: Round = { count, singleMs: 0, togetherMs: 0 };
    const sizes = this.#sizes(count, experience);
    let singles = 0;
    let at = 0;
    for (const size of sizes) {
      const beganMs = this.#clockMs();
      call(at, size);
      const tookMs = this.#clockMs() - beganMs;
      at += size;
      if (size === count) round.togetherMs = tookMs;
      else if (size === 1) round.singleMs += (tookMs - round.singleMs) / ++singles;
    }
    this.#compare(round, experience);
    this.#last = round;
  }

  /** All in one call, or one in each; in a trial the other way, where slow, with one call of one. */
  #sizes(count: number, experience: Experience): readonly number[] {
    const apart = experience.ratios.length > 0 && median(experience.ratios) < 1;
    const { singleMs, togetherMs } = this.#last;
    const usual = this.#last.count === count ? (apart ? singleMs : togetherMs) : 0;
    const due =
      experience.ratios.length < COMPARISONS || ++experience.rounds > ROUNDS_BETWEEN_COMPARISONS;
    // A trial follows a round of the usual way, to be compared with it.
    const trial = due && usual > 0;
    if (apart) return trial ? [count] : Array<number>(count).fill(1);
    return trial ? [1, count - 1] : [count];
  }

  #compare(round: Round, experience: Experience): void {
    if (round.count !== this.#last.count) return;
    const singleMs = round.singleMs || this.#last.singleMs;
    const togetherMs = round.togetherMs || this.#last.togetherMs;
    if (singleMs === 0 || togetherMs === 0) return;
    if (experience.ratios.length === COMPARISONS) experience.ratios.shift();
    experience.ratios.push((singleMs * round.count) / togetherMs);
    experience.rounds = 0;
  }
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[values.length >> 1] as number;
}

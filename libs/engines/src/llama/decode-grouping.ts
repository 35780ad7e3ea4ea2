/** Times remembered per number of sequences. */
const SAMPLES = 4;

/** Times needed before a number counts as known. */
const ENOUGH_SAMPLES = 3;

/** Rounds after which the way not taken is timed once more: contexts grow and machines change. */
const ROUNDS_BETWEEN_TRIALS = 256;

/**
 * Decides how many sequences decode in one call. Together they read the weights once, which is what
 * counts where memory is the limit. Where arithmetic is, as with few threads, a kernel for several
 * rows can be slower than as many calls for one row each. Which holds depends on the processor, the
 * quantization and the threads, so it is timed as it goes.
 */
export class DecodeGrouping {
  /** The latest times of calls by their number of sequences, in ms. */
  readonly #samples: number[][];
  #rounds = 0;

  constructor(maxSequences: number) {
    this.#samples = Array.from({ length: maxSequences + 1 }, () => []);
  }

  /** The sequences per call of the next round: all in one, one in each, or, to time one, both. */
  groups(count: number): readonly number[] {
    const together = [count];
    if (count < 2) return together;
    const single = this.#cost(1);
    const joined = this.#cost(count);
    if (single === undefined) return [1, count - 1];
    if (joined === undefined) return together;
    const apart = single * count < joined;
    if (++this.#rounds % ROUNDS_BETWEEN_TRIALS === 0) return apart ? together : [1, count - 1];
    return apart ? Array<number>(count).fill(1) : together;
  }

  /** Tells how long a call with one token of each of so many sequences took. */
  observe(sequences: number, tookMs: number): void {
    const samples = this.#samples[sequences] as number[];
    if (samples.length === SAMPLES) samples.shift();
    samples.push(tookMs);
  }

  /** The least of the latest times: whatever else the machine does only adds to it. */
  #cost(sequences: number): number | undefined {
    const samples = this.#samples[sequences] as number[];
    return samples.length < ENOUGH_SAMPLES ? undefined : Math.min(...samples);
  }
}

/** Comparisons remembered per number of sequences; of calls 20 % noisy, their mean is good to 4 %. */
const COMPARISONS = 32;

/** This many are made, one every second round, before the grouping may change. */
const FIRST_COMPARISONS = 3;

/** Rounds from one comparison to the next while they leave a doubt, and at most. */
const ROUNDS_IN_DOUBT = 4;
const MOST_ROUNDS = 512;

/** A change must promise this much, as a logarithm, beyond what the comparisons' scatter explains. */
const WORTH_A_CHANGE = 0.025;

/** Few comparisons may agree by chance: this many more of this scatter are assumed. */
const ASSUMED_SCATTER = 0.1;
const ASSUMED_COMPARISONS = 2;

/** Calls that take longer or shorter by this factor than when compared last: then this many rounds are compared. */
const DRIFT = 1.65;
const ROUNDS_AFTER_DRIFT = 64;

/** What the latest round weighs in the time that a comparison is made with. */
const LATEST_ROUND = 0.5;

/** No comparison counts for more: one slow call, as when the machine stops for a moment, is one. */
const LARGEST_LOG_RATIO = 1;

/** What is known of rounds of one number of sequences. */
interface Experience {
  /** The latest comparisons: the logarithm of the time of one call each over that of one for all. */
  readonly logRatios: number[];
  /** Whether each sequence has a call of its own. */
  apart: boolean;
  /** Rounds since the last comparison, and after how many the next one is due. */
  rounds: number;
  interval: number;
  /** The time of a usual call at the last comparison; 0 before the first. */
  comparedMs: number;
  /** The latest time of one call for all; 0 before the first. */
  togetherMs: number;
}

/** Rounds of one number of sequences that follow each other, and the time of their usual calls. */
interface Streak {
  readonly count: number;
  /** Smoothed; 0 before the first. */
  usualMs: number;
}

/** Brings the sequences of a round together, so that calls for several of them are fast. */
type Gather = () => void;

/** Computes the sequences from index `at` on, `size` of them, in one call. */
type Call = (at: number, size: number) => void;

/**
 * Decides whether sequences decode together in one call or apart, in one call each.
 * - Together they read the weights once, which is faster where memory bandwidth is the limit.
 * - Where arithmetic is the limit, as with few threads, a kernel for several rows can be slower.
 * - Processor, quantization and threads decide, so both are timed in rounds that follow each other:
 *   the speed of a shared machine changes.
 * - The grouping changes, in either direction, when the comparisons' mean exceeds their standard error.
 * - In doubt both cost about the same, so they are compared often; a clear difference needs few comparisons.
 */
export class DecodeGrouping {
  readonly #clockMs: () => number;
  readonly #experiences: readonly Experience[];
  #streak: Streak = { count: 0, usualMs: 0 };

  /** The clock may count processor time; only differences matter. */
  constructor(maxSequences: number, clockMs: () => number) {
    this.#clockMs = clockMs;
    this.#experiences = Array.from({ length: maxSequences + 1 }, () => ({
      logRatios: [],
      apart: false,
      rounds: 0,
      interval: 1,
      comparedMs: 0,
      togetherMs: 0,
    }));
  }

  /** Whether each of this many sequences has a call of its own. */
  isApart(count: number): boolean {
    return count < 2 || (this.#experiences[count] as Experience).apart;
  }

  /** The latest time of one call for this many; 0 before the first. */
  togetherMs(count: number): number {
    return (this.#experiences[count] as Experience).togetherMs;
  }

  /**
   * Runs a round: calls cover each of the `count` sequences once, in order. Where one call covers
   * several, `gather` comes before; it is not timed, as it has work only when sequences changed.
   */
  run(count: number, gather: Gather, call: Call): void {
    if (this.#streak.count !== count) this.#streak = { count, usualMs: 0 };
    if (count < 2) {
      // There is nothing to compare, and reading the clock costs more than the rest.
      call(0, count);
      return;
    }
    const experience = this.#experiences[count] as Experience;
    const trial = this.#isTrialDue(experience);
    if (trial || !experience.apart) gather();
    if (trial) this.#compare(count, experience, call);
    else if (experience.apart) this.#smooth(this.#timeOfEach(count, call) / count);
    else experience.togetherMs = this.#smooth(this.#timeOf(call, 0, count));
  }

  /** A trial follows a round of the usual way, to be compared with it. */
  #isTrialDue(experience: Experience): boolean {
    const { usualMs } = this.#streak;
    experience.rounds++;
    if (usualMs === 0) return false;
    const { comparedMs } = experience;
    const drifted = usualMs > comparedMs * DRIFT || usualMs * DRIFT < comparedMs;
    return (
      experience.rounds > Math.min(experience.interval, drifted ? ROUNDS_AFTER_DRIFT : MOST_ROUNDS)
    );
  }

  /** A round of the other way; where that is one call each, which may be slow, with one call of one. */
  #compare(count: number, experience: Experience, call: Call): void {
    const { usualMs } = this.#streak;
    const otherMs = this.#timeOf(call, 0, experience.apart ? count : 1);
    if (!experience.apart) call(1, count - 1);
    const ratio = experience.apart ? (usualMs * count) / otherMs : (otherMs * count) / usualMs;
    learn(experience, Math.log(ratio));
    experience.comparedMs = usualMs;
    // A change of ways changes what is usual.
    this.#streak.usualMs = 0;
  }

  #smooth(ms: number): number {
    const { usualMs } = this.#streak;
    this.#streak.usualMs = usualMs === 0 ? ms : usualMs + LATEST_ROUND * (ms - usualMs);
    return this.#streak.usualMs;
  }

  #timeOfEach(count: number, call: Call): number {
    let ms = 0;
    for (let at = 0; at < count; at++) ms += this.#timeOf(call, at, 1);
    return ms;
  }

  #timeOf(call: Call, at: number, size: number): number {
    const beganMs = this.#clockMs();
    call(at, size);
    return this.#clockMs() - beganMs;
  }
}

/** Takes a comparison in: which way is the usual one from now on, and when to compare again. */
function learn(experience: Experience, logRatio: number): void {
  const { logRatios } = experience;
  if (logRatios.length === COMPARISONS) logRatios.shift();
  logRatios.push(Math.max(-LARGEST_LOG_RATIO, Math.min(LARGEST_LOG_RATIO, logRatio)));
  experience.rounds = 0;
  if (logRatios.length < FIRST_COMPARISONS) return;
  const { mean, error } = estimate(logRatios);
  const gain = experience.apart ? mean : -mean;
  const changes = gain - error > WORTH_A_CHANGE;
  if (changes) experience.apart = !experience.apart;
  // Many comparisons without a clear result show that it makes no difference.
  const sure = Math.abs(mean) > 2 * error || logRatios.length === COMPARISONS;
  const agrees = logRatio < 0 === experience.apart;
  experience.interval =
    sure && agrees && !changes ? Math.min(2 * experience.interval, MOST_ROUNDS) : ROUNDS_IN_DOUBT;
}

/** The mean and its standard error. */
function estimate(values: readonly number[]): { mean: number; error: number } {
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  const assumed = ASSUMED_COMPARISONS * ASSUMED_SCATTER ** 2;
  const squares = values.reduce((sum, value) => sum + (value - mean) ** 2, assumed);
  const variance = squares / (values.length - 1 + ASSUMED_COMPARISONS);
  return { mean, error: Math.sqrt(variance / values.length) };
}

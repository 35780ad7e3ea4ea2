/** The longest part, in tokens, whose repetition is seen. */
const MAX_PERIOD = 64;
/** Repetitions in a row, and their tokens: fewer do not show a text without end. */
const MIN_REPEATS = 16;
const MIN_TOKENS = 96;
/** The most tokens that must be seen to repeat others. */
export const MAX_REPEATED = MAX_PERIOD * MIN_REPEATS;

/** Tokens of a text that only repeat those of one period before. */
export interface Repetition {
  /** In tokens. */
  readonly period: number;
  readonly tokens: number;
}

/** Sees where a text does nothing but repeat its latest tokens, which a model may do without end. */
export class RepetitionWatch {
  readonly #latest = new Int32Array(MAX_PERIOD).fill(-1);
  /** Indexed by period: how many of the latest tokens equal the token one period before. */
  readonly #runs = new Int32Array(MAX_PERIOD + 1);
  #count = 0;

  /** Takes the next token; gives the repetition of the shortest period that the text is in. */
  push(token: number): Repetition | undefined {
    let shortest = 0;
    for (let period = MAX_PERIOD; period > 0; period--) {
      const before = this.#latest[(this.#count - period + MAX_PERIOD) % MAX_PERIOD];
      const run = before === token ? (this.#runs[period] as number) + 1 : 0;
      this.#runs[period] = run;
      if (run >= Math.max(MIN_TOKENS, period * (MIN_REPEATS - 1))) shortest = period;
    }
    this.#latest[this.#count % MAX_PERIOD] = token;
    this.#count = (this.#count + 1) % (MAX_PERIOD * MAX_PERIOD);
    if (shortest === 0) return undefined;
    return { period: shortest, tokens: this.#runs[shortest] as number };
  }

  /** Begins again. */
  clear(): void {
    this.#runs.fill(0);
    this.#latest.fill(-1);
  }
}

/** Kinds of matches: fewer tokens than the first bound, fewer than the second, and so on. */
const LONGER_MATCHES = [4, 6, 9, 12, 20];

/** By kind of match: the assumed share of right predictions before any was measured. */
const FIRST_RATES = [0.3, 0.3, 0.4, 0.5, 0.5, 0.6];

/** The most tokens that the rate of a text counts, and that of all texts: older ones are forgotten. */
const TOKENS_OF_TEXT = 20;
const TOKENS_OF_ALL = 50;

/** How texts of a class begin. */
export interface RatesStart {
  /** What the rates of the texts before weigh, in tokens. */
  readonly firstWeight: number;
  /** How many standard errors a rate is taken below its mean. */
  readonly caution: number;
}

/**
 * Shares of right predictions by kind of match, of one text or of all. A text begins with what was
 * measured of the others, so that its first drafts are as long as theirs were right.
 */
export class DraftRates {
  readonly #all: DraftRates | undefined;
  readonly #rates: number[];
  readonly #counts: number[];
  readonly #start: RatesStart;

  /** The rates of a text add to those of `all`. */
  constructor(start: RatesStart, all?: DraftRates) {
    this.#all = all;
    this.#rates = [...(all ? all.#rates : FIRST_RATES)];
    this.#start = start;
    this.#counts = FIRST_RATES.map(() => start.firstWeight);
  }

  /** The rates of a new text. */
  ofText(): DraftRates {
    return new DraftRates(this.#start, this);
  }

  /** The share for predictions of such a kind, on the safe side. */
  of(kind: number): number {
    const rate = this.#rates[kind] as number;
    const error = Math.sqrt((rate * (1 - rate)) / ((this.#counts[kind] as number) + 1));
    return Math.max(0, rate - this.#start.caution * error);
  }

  /** Takes in whether a prediction was right. */
  learn(kind: number, isRight: boolean): void {
    this.#all?.learn(kind, isRight);
    const most = this.#all ? TOKENS_OF_TEXT : TOKENS_OF_ALL;
    const count = Math.min(most, (this.#counts[kind] as number) + 1);
    const rate = this.#rates[kind] as number;
    this.#counts[kind] = count;
    this.#rates[kind] = rate + ((isRight ? 1 : 0) - rate) / count;
  }
}

/** The kind of a match by its tokens. */
export function kindOf(match: number): number {
  return LONGER_MATCHES.filter((least) => match >= least).length;
}

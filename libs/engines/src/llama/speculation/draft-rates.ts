/** Kinds of matches: fewer tokens than the first bound, fewer than the second, and so on. */
const LONGER_MATCHES = [4, 6, 9, 12, 20];

/** By kind of match: the assumed share of right predictions before any was measured. */
const FIRST_RATES = [0.3, 0.3, 0.4, 0.5, 0.5, 0.6];

/** The least weight of the latest token in the rate of its text, and in that of all texts. */
const LATEST_OF_TEXT = 0.05;
const LATEST_OF_ALL = 0.02;

/**
 * Shares of right predictions by kind of match, of one text or of all. A text begins with what was
 * measured of the others, so that its first drafts are as long as theirs were right.
 */
export class DraftRates {
  readonly #all: DraftRates | undefined;
  readonly #rates: number[];
  readonly #counts: number[];
  readonly #firstWeight: number;

  /** The first rates weigh as much as `firstWeight` tokens. Those of a text add to those of `all`. */
  constructor(firstWeight: number, all?: DraftRates) {
    this.#all = all;
    this.#rates = [...(all ? all.#rates : FIRST_RATES)];
    this.#firstWeight = firstWeight;
    this.#counts = FIRST_RATES.map(() => firstWeight);
  }

  /** The rates of a new text. */
  ofText(): DraftRates {
    return new DraftRates(this.#firstWeight, this);
  }

  /** The share for predictions of such a kind. */
  of(kind: number): number {
    return this.#rates[kind] as number;
  }

  /** Takes in whether a prediction was right. */
  learn(kind: number, isRight: boolean): void {
    this.#all?.learn(kind, isRight);
    const count = (this.#counts[kind] as number) + 1;
    this.#counts[kind] = count;
    const weight = Math.max(this.#all ? LATEST_OF_TEXT : LATEST_OF_ALL, 1 / count);
    this.#rates[kind] = this.of(kind) + weight * ((isRight ? 1 : 0) - this.of(kind));
  }
}

/** The kind of a match by its tokens. */
export function kindOf(match: number): number {
  return LONGER_MATCHES.filter((least) => match >= least).length;
}

import type { TokenList } from "../kv-cache/token-list.ts";
import { DRAFT_LENGTHS } from "./draft-cost.ts";
import { type DraftRates, kindOf } from "./draft-rates.ts";
import { LookupIndex } from "./lookup-index.ts";

/** The most tokens that are drafted for one call. */
export const MAX_DRAFT_TOKENS = Math.max(...DRAFT_LENGTHS);

/** A draft must promise this many times the tokens of a call without it, so that small gains are not tried. */
const LEAST_GAIN = 1.05;

/**
 * Predicts the next tokens of one sequence: those that followed where its last tokens occurred before
 * (Saxena, "Prompt Lookup Decoding", 2023).
 * - A draft has the length that promises the most tokens for its cost.
 * - Without a draft, one token is still predicted and compared with the sampled one. So the measured
 *   rate stays current, and a wrong prediction costs no call.
 */
export class Drafter {
  /** The predicted tokens; the first of them are the draft. */
  readonly tokens = new Int32Array(MAX_DRAFT_TOKENS);
  readonly #text: TokenList;
  readonly #rates: DraftRates;
  #index: LookupIndex;
  /** The kind of the present match. */
  #kind = 0;
  #predicted = 0;
  #drafted = 0;
  #sampled = 0;

  constructor(text: TokenList, rates: DraftRates) {
    this.#text = text;
    this.#rates = rates;
    this.#index = new LookupIndex(text);
  }

  /** A part of the text was taken away. */
  forgetPlaces(): void {
    this.#index = new LookupIndex(this.#text);
  }

  /**
   * Predicts what follows; gives the tokens to draft, at most `limit`. `costOf` a draft is in calls
   * without one.
   */
  propose(limit: number, costOf: (drafted: number) => number): number {
    this.#predicted = 0;
    this.#drafted = 0;
    this.#sampled = 0;
    const found = this.#index.find();
    if (found === undefined) return 0;
    const { place, match } = found;
    const { values, length } = this.#text;
    this.#kind = kindOf(match);
    this.#drafted = bestLength(this.#rates.of(this.#kind), limit, costOf);
    this.#predicted = Math.max(1, this.#drafted);
    // A text that repeats its last few tokens continues with them.
    const period = length - place;
    for (let at = 0; at < this.#predicted; at++) {
      this.tokens[at] = values[place + (at % period)] as number;
    }
    return this.#drafted;
  }

  /** Compares the next sampled token; true where the draft holds it, so that its row can be used. */
  accepts(token: number): boolean {
    const at = this.#sampled++;
    if (at >= this.#predicted) return false;
    const isRight = this.tokens[at] === token;
    this.#rates.learn(this.#kind, isRight);
    if (!isRight) this.#predicted = 0;
    return isRight && at < this.#drafted;
  }
}

/** Token i of a draft is of use only where all before it are right: its probability is rate^i. */
function bestLength(rate: number, most: number, costOf: (drafted: number) => number): number {
  let best = 0;
  let gain = LEAST_GAIN;
  let tokens = 1;
  let drafted = 0;
  for (const length of DRAFT_LENGTHS) {
    if (length > most) break;
    while (drafted < length) tokens += rate ** ++drafted;
    const promised = tokens / costOf(length);
    if (promised <= gain) continue;
    best = length;
    gain = promised;
  }
  return best;
}

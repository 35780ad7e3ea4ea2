import type { TokenList } from "../kv-cache/token-list.ts";
import type { DraftBudget } from "./draft-budget.ts";
import { DRAFT_LENGTHS } from "./draft-cost.ts";
import { type DraftRates, kindOf } from "./draft-rates.ts";
import { LookupIndex } from "./lookup-index.ts";

/** The most tokens that are drafted for one call. */
export const MAX_DRAFT_TOKENS = Math.max(...DRAFT_LENGTHS);

/** A draft must promise this many times the tokens of a call without it, so that small gains are not tried. */
const LEAST_GAIN = 1.05;

/** What was learned of drafts, of all texts of a kind or of one. */
export interface DraftRecord {
  readonly rates: DraftRates;
  readonly budget: DraftBudget;
}

/** A length with what its call costs. */
interface Draft {
  readonly length: number;
  readonly cost: number;
}

const NO_DRAFT: Draft = { length: 0, cost: 1 };

/**
 * Predicts the next tokens of one sequence: those that followed where its last tokens occurred before
 * (Saxena, "Prompt Lookup Decoding", 2023).
 * - A draft has the length that promises the most tokens for its cost, within the text's budget.
 * - Without a draft, one token is still predicted and compared with the sampled one. So the measured
 *   rate stays current, and a wrong prediction costs no call.
 */
export class Drafter {
  /** The predicted tokens; the first of them are the draft. */
  readonly tokens = new Int32Array(MAX_DRAFT_TOKENS);
  readonly #text: TokenList;
  readonly #record: DraftRecord;
  #index: LookupIndex;
  /** The kind of the present match. */
  #kind = 0;
  #predicted = 0;
  #draft = NO_DRAFT;
  #sampled = 0;

  /** With the record of texts like this one. */
  constructor(text: TokenList, { rates, budget }: DraftRecord) {
    this.#text = text;
    this.#record = { rates: rates.ofText(), budget: budget.ofText() };
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
    this.#draft = NO_DRAFT;
    this.#sampled = 0;
    const found = this.#index.find();
    if (found === undefined) return 0;
    const { place, match } = found;
    const { values, length } = this.#text;
    this.#kind = kindOf(match);
    const { rates, budget } = this.#record;
    this.#draft = bestDraft(rates.of(this.#kind), limit, costOf, budget.calls);
    this.#predicted = Math.max(1, this.#draft.length);
    // A text that repeats its last few tokens continues with them.
    const period = length - place;
    for (let at = 0; at < this.#predicted; at++) {
      this.tokens[at] = values[place + (at % period)] as number;
    }
    return this.#draft.length;
  }

  /** The draft is not computed; its first token is still predicted. */
  withdraw(): void {
    this.#draft = NO_DRAFT;
  }

  /** The draft was computed. */
  computed(): void {
    this.#record.budget.spend(this.#draft.cost - 1);
  }

  /** Compares the next sampled token; true where the draft holds it, so that its row can be used. */
  accepts(token: number): boolean {
    const at = this.#sampled++;
    const { rates, budget } = this.#record;
    const isRight = at < this.#predicted && this.tokens[at] === token;
    const isDrafted = isRight && at < this.#draft.length;
    budget.sampled(isDrafted, isRight);
    if (at < this.#predicted) rates.learn(this.#kind, isRight);
    if (!isRight) this.#predicted = 0;
    return isDrafted;
  }
}

/** Token i of a draft is of use only where all before it are right: its probability is rate^i. */
function bestDraft(
  rate: number,
  most: number,
  costOf: (drafted: number) => number,
  budget: number,
): Draft {
  let best = NO_DRAFT;
  let gain = LEAST_GAIN;
  let promised = 1;
  let drafted = 0;
  for (const length of DRAFT_LENGTHS) {
    if (length > most) break;
    while (drafted < length) promised += rate ** ++drafted;
    const cost = costOf(length);
    if (promised / cost <= gain || cost - 1 > budget) continue;
    best = { length, cost };
    gain = promised / cost;
  }
  return best;
}

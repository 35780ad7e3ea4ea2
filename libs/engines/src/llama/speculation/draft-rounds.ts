import type { Sequence, TextSequence } from "../kv-cache/sequence.ts";
import type { TokenList } from "../kv-cache/token-list.ts";
import { DraftCost } from "./draft-cost.ts";
import { DraftRates } from "./draft-rates.ts";
import { Drafter } from "./drafter.ts";

/** Drafted tokens of a round over all sequences: more sequences get shorter drafts. */
export const MAX_ROUND_DRAFT_TOKENS = 64;

/** What the first rates of a text weigh in tokens: a few draws are more often right by chance. */
const GREEDY_WEIGHT = 2;
const DRAWN_WEIGHT = 4;

interface DraftLimits {
  /** The most tokens of a draft. */
  readonly draftTokens: number;
  readonly contextTokens: number;
}

/** Plans the drafts of a round's sequences, and counts what they bring. */
export class DraftRounds {
  /** Predicted tokens that were computed, and those of them that were sampled, since the start. */
  readonly totals = { drafted: 0, accepted: 0 };
  readonly #limits: DraftLimits;
  readonly #clockMs: () => number;
  readonly #cost = new DraftCost();
  /** The rates of all texts whose tokens are the likeliest ones, and of those whose tokens are drawn. */
  readonly #greedyRates = new DraftRates(GREEDY_WEIGHT);
  readonly #drawnRates = new DraftRates(DRAWN_WEIGHT);

  constructor(limits: DraftLimits, clockMs: () => number) {
    this.#limits = limits;
    this.#clockMs = clockMs;
  }

  /** Predicts the tokens of a new text. */
  drafterOf(text: TokenList, temperature: number): Drafter {
    const all = temperature === 0 ? this.#greedyRates : this.#drawnRates;
    return new Drafter(text, all.ofText());
  }

  /**
   * Sets `drafted` of each; gives their sum. With `none` tokens are predicted and not computed; `together`
   * all are computed in one call.
   */
  plan(decoding: readonly TextSequence[], how: "none" | "apart" | "together"): number {
    const { draftTokens, contextTokens } = this.#limits;
    const share = Math.floor(MAX_ROUND_DRAFT_TOKENS / Math.max(1, decoding.length));
    const limit = how === "none" ? 0 : Math.min(draftTokens, share);
    const sequences = how === "together" ? decoding.length : 1;
    const costOf = (drafted: number) => this.#cost.of(drafted, sequences);
    let sum = 0;
    for (const sequence of decoding) {
      const { drafter, request, sampled, tokens } = sequence;
      if (drafter === undefined) continue;
      const left = Math.min(request.maxTokens - sampled, contextTokens - tokens.length) - 1;
      sequence.drafted = drafter.propose(Math.min(limit, left), costOf);
      sum += sequence.drafted;
    }
    return sum;
  }

  /** Whether the sequence gets a call of its own, where that costs no more than one with others. */
  isAlone({ drafter, drafted }: TextSequence): boolean {
    return drafted > 0 || (drafter !== undefined && this.#cost.isTimingDue());
  }

  /** Runs a call that decodes one sequence, and learns from the time that it takes. */
  timed({ drafted }: Pick<Sequence, "drafted">, call: () => void): void {
    const beganMs = this.#clockMs();
    call();
    this.#cost.measured(drafted, this.#clockMs() - beganMs);
  }

  /** Whether the sampled token is the next of the draft, whose cell then counts as computed. */
  accepts(sequence: TextSequence, token: number): boolean {
    if (!sequence.drafter?.accepts(token) || sequence.drafted === 0) return false;
    sequence.drafted--;
    sequence.computed++;
    this.totals.accepted++;
    return true;
  }
}

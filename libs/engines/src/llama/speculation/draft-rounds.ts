import type { Sequence, TextSequence } from "../kv-cache/sequence.ts";
import type { TokenList } from "../kv-cache/token-list.ts";
import { DraftBudget } from "./draft-budget.ts";
import { DraftCost } from "./draft-cost.ts";
import { DraftRates, type RatesStart } from "./draft-rates.ts";
import { Drafter, type DraftRecord } from "./drafter.ts";

/** Drafted tokens of a round over all sequences: more sequences get shorter drafts. */
export const MAX_ROUND_DRAFT_TOKENS = 128;

interface DraftLimits {
  /** The most tokens of a draft. */
  readonly draftTokens: number;
  readonly contextTokens: number;
}

/**
 * How a round with drafts is computed: `together` in one call, `apart` in one call for each sequence.
 * With a time, in one call that takes so long without drafts, which those with a draft leave. Those with
 * drafts of one length share a call, which costs no more than one for each.
 */
type DraftWay = "together" | "apart" | { readonly roundMs: number };

/** Plans the drafts of a round's sequences, and counts what they bring. */
export class DraftRounds {
  /** Predicted tokens that were computed, and those of them that were sampled, since the start. */
  readonly totals = { drafted: 0, accepted: 0 };
  readonly #limits: DraftLimits;
  readonly #clockMs: () => number;
  readonly #cost = new DraftCost();
  /**
   * Rates of all texts whose tokens are the likeliest ones, and of those whose tokens are drawn, which
   * are more often right by chance. They are a few numbers and no text: all callers share them.
   */
  readonly #greedy = recordOf({ firstWeight: 2, caution: 0 }, 24);
  readonly #drawn = recordOf({ firstWeight: 4, caution: 1 }, 4);

  constructor(limits: DraftLimits, clockMs: () => number) {
    this.#limits = limits;
    this.#clockMs = clockMs;
  }

  /** Predicts the tokens of a new text. */
  drafterOf(text: TokenList, temperature: number): Drafter {
    return new Drafter(text, temperature === 0 ? this.#greedy : this.#drawn);
  }

  /** Sets `drafted` of each, and gives their sum. */
  plan(decoding: readonly TextSequence[], way: DraftWay): number {
    const count = decoding.length;
    // Before both times are known, tokens are only predicted.
    const isKnown = typeof way === "string" || (way.roundMs > 0 && this.#cost.msOf(0) > 0);
    const limit = isKnown ? Math.floor(MAX_ROUND_DRAFT_TOKENS / Math.max(1, count)) : 0;
    const costOf = this.#costOf(way, count);
    for (const sequence of decoding) this.#propose(sequence, limit, costOf);
    return decoding.reduce((sum, { drafted }) => sum + drafted, 0);
  }

  /** Tokens are predicted and not computed. */
  withdraw(decoding: readonly TextSequence[]): void {
    for (const sequence of decoding) {
      sequence.drafter?.withdraw();
      sequence.drafted = 0;
    }
  }

  /** The cost of a draft, as a multiple of the sequence's part of the round without drafts. */
  #costOf(way: DraftWay, count: number): (drafted: number) => number {
    const cost = this.#cost;
    if (typeof way === "string") {
      return (drafted) => cost.of(drafted, way === "together" ? count : 1);
    }
    // The others' call is shorter by this, without the sequence.
    const savedMs = Math.max(0, way.roundMs - cost.msOf(0)) / (count - 1);
    const partMs = way.roundMs / count;
    return (drafted) => 1 + (cost.msOf(drafted) - savedMs) / partMs;
  }

  #propose(sequence: TextSequence, limit: number, costOf: (drafted: number) => number): void {
    const { drafter, request, sampled, tokens } = sequence;
    if (drafter === undefined) return;
    const { draftTokens, contextTokens } = this.#limits;
    const left = Math.min(request.maxTokens - sampled, contextTokens - tokens.length) - 1;
    sequence.drafted = drafter.propose(Math.min(draftTokens, limit, left), costOf);
  }

  /**
   * Whether the sequence gets a call of its own, which is timed. That is the first of a draft's length,
   * and where they are `apart` some without a draft.
   */
  isAlone({ drafter, drafted }: TextSequence, isApart: boolean): boolean {
    if (drafted > 0) return !this.#cost.isMeasured(drafted);
    return isApart && drafter !== undefined && this.#cost.isTimingDue();
  }

  /** Runs a call that decodes one sequence, and learns from the time that it takes. */
  timed({ drafted }: Pick<Sequence, "drafted">, call: () => void): void {
    const beganMs = this.#clockMs();
    call();
    this.#cost.measured(drafted, this.#clockMs() - beganMs);
  }

  /** The sequence's draft was computed. */
  computed(sequence: Sequence): void {
    if (sequence.drafted === 0 || sequence.embedding !== undefined) return;
    sequence.drafter?.computed();
    this.totals.drafted += sequence.drafted;
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

function recordOf(start: RatesStart, mostFirstCalls: number): DraftRecord {
  return { rates: new DraftRates(start), budget: new DraftBudget(mostFirstCalls) };
}

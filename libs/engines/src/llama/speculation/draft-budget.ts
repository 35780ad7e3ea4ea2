/** What the drafts of a text may lose whatever others lost, and those of the first text of a class. */
const LEAST_FIRST_CALLS = 1.5;
const CLASS_FIRST_CALLS = 8;

/** The most that is kept of what drafts saved or lost: the cost of a long one. */
const MOST_CALLS = 24;

/** What a sampled token adds: little, or more where it was predicted and not computed. */
const CALLS_PER_TOKEN = 0.01;
const CALLS_PER_PREDICTED_TOKEN = 0.1;

/**
 * What the drafts of a text may lose, in calls without a draft: what they saved, and a little for each
 * token. So a text whose drafts fail takes hardly longer, whatever the rates promise. A text begins
 * with what the others' drafts left, within bounds.
 */
export class DraftBudget {
  readonly #all: DraftBudget | undefined;
  readonly #mostFirstCalls: number;
  #calls: number;

  /** The budget of all texts of a class, or of one of them, which begins with at most `mostFirstCalls`. */
  constructor(mostFirstCalls: number, all?: DraftBudget) {
    this.#all = all;
    this.#mostFirstCalls = mostFirstCalls;
    this.#calls = all
      ? Math.min(mostFirstCalls, Math.max(LEAST_FIRST_CALLS, all.calls))
      : CLASS_FIRST_CALLS;
  }

  /** The budget of a new text. */
  ofText(): DraftBudget {
    return new DraftBudget(this.#mostFirstCalls, this);
  }

  /** The most that a draft may cost now. */
  get calls(): number {
    return this.#calls;
  }

  /** A draft is computed, which makes its call longer by this many calls. */
  spend(calls: number): void {
    this.#all?.spend(calls);
    this.#calls = Math.max(-MOST_CALLS, this.#calls - calls);
  }

  /** A token was sampled, from a draft's row, which saved a call, or as predicted. */
  sampled(isDrafted: boolean, isPredicted: boolean): void {
    this.#all?.sampled(isDrafted, isPredicted);
    const unsaved = isPredicted ? CALLS_PER_PREDICTED_TOKEN : CALLS_PER_TOKEN;
    this.#calls = Math.min(MOST_CALLS, this.#calls + (isDrafted ? 1 : unsaved));
  }
}

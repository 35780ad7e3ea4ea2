import type { Limits } from "@heddle/contracts/limits";
import { subjectId } from "@heddle/contracts/limits";
import { type RateLimiter, type RateRefusal, RateReservation } from "../rate-limiter.ts";
import {
  type Amounts,
  type Hold,
  type LimitRefusal,
  type LimitStore,
  type Subject,
  type SubjectView,
} from "./limit-store.ts";
import type { OwnSpend } from "./own-spend.ts";

export interface EmbeddedLimitsOptions {
  readonly limiter: RateLimiter;
  readonly spend: OwnSpend;
  /** This master's share of a subject's limits. */
  readonly share: (subject: Subject) => Limits;
}

const NOTHING: Amounts = { tokens: 0, spend: 0 };

/** Counts in this master's memory: its share of each limit. What is spent is in its usage ledger. */
export class EmbeddedLimits implements LimitStore {
  readonly #options: EmbeddedLimitsOptions;

  constructor(options: EmbeddedLimitsOptions) {
    this.#options = options;
  }

  admit(subjects: readonly Subject[]): EmbeddedHold | LimitRefusal {
    const parts: Part[] = [];
    for (const subject of subjects) {
      const limits = this.#options.share(subject);
      const rate = this.#options.limiter.admit(subjectId(subject), limits);
      if (!(rate instanceof RateReservation)) {
        for (const part of parts) part.rate.cancel();
        return refusalOf(subject, rate);
      }
      parts.push({ subject, rate, budget: limits.budget?.amount });
    }
    for (const subject of subjects) this.#options.spend.begin(subject);
    return new EmbeddedHold(parts, this.#options.spend);
  }

  /** Counts a running call that something else has admitted. */
  adopt(subjects: readonly Subject[]): EmbeddedHold | LimitRefusal {
    const { limiter, share, spend } = this.#options;
    const parts: Part[] = [];
    for (const subject of subjects) {
      const limits = share(subject);
      const rate = limiter.adopt(subjectId(subject), limits);
      if (!rate) {
        for (const part of parts) part.rate.finish(0);
        return { ok: false, subject, limitedBy: "keys", limit: 0, retryAfterMs: 1000 };
      }
      parts.push({ subject, rate, budget: limits.budget?.amount });
    }
    for (const subject of subjects) spend.begin(subject);
    return new EmbeddedHold(parts, spend);
  }

  runningOf(subject: Subject): number {
    return this.#options.limiter.runningOf(subjectId(subject));
  }

  /** All rate limits are used up now. */
  empty(): void {
    this.#options.limiter.empty();
  }

  views(subjects: readonly Subject[]): readonly SubjectView[] {
    const { limiter, share } = this.#options;
    return subjects.map((subject) => limiter.view(subjectId(subject), share(subject)));
  }

  budgetLeft(subject: Subject): number | undefined {
    const { budget } = this.#options.share(subject);
    return budget && budget.amount - this.#options.spend.of(subject);
  }
}

interface Part {
  readonly subject: Subject;
  readonly rate: RateReservation;
  /** This master's share. */
  readonly budget: number | undefined;
}

export class EmbeddedHold implements Hold {
  readonly ok = true;
  readonly #parts: readonly Part[];
  readonly #spend: OwnSpend;
  #reserved = NOTHING;
  #ended = false;

  constructor(parts: readonly Part[], spend: OwnSpend) {
    this.#parts = parts;
    this.#spend = spend;
  }

  reserve(amounts: Amounts): LimitRefusal | undefined {
    const refusal = this.#spendRefusal(amounts.spend) ?? this.#reserveTokens(amounts.tokens);
    if (refusal) return refusal;
    this.correct(amounts);
    return undefined;
  }

  correct(amounts: Amounts): void {
    if (this.#ended) return;
    const more = amounts.spend - this.#reserved.spend;
    for (const { subject, rate } of this.#parts) {
      rate.correct(amounts.tokens);
      if (more !== 0) this.#spend.reserve(subject, more);
    }
    this.#reserved = amounts;
  }

  finish({ tokens, spend }: Amounts): void {
    if (this.#ended) return;
    this.#ended = true;
    for (const { rate } of this.#parts) rate.finish(tokens);
    this.#endSpend(spend);
  }

  cancel(): void {
    if (this.#ended) return;
    this.#ended = true;
    for (const { rate } of this.#parts) rate.cancel();
    this.#endSpend(0);
  }

  views(): readonly SubjectView[] {
    return this.#parts.map(({ rate }) => rate.view());
  }

  #reserveTokens(tokens: number): LimitRefusal | undefined {
    if (tokens === 0) return undefined;
    for (const [index, { subject, rate }] of this.#parts.entries()) {
      const refusal = rate.reserve(tokens);
      if (!refusal) continue;
      for (const before of this.#parts.slice(0, index)) before.rate.correct(0);
      return refusalOf(subject, refusal);
    }
    return undefined;
  }

  #spendRefusal(spend: number): LimitRefusal | undefined {
    if (spend === 0) return undefined;
    for (const { subject, budget } of this.#parts) {
      if (budget === undefined || this.#spend.of(subject) + spend <= budget) continue;
      return { ok: false, subject, limitedBy: "spend", limit: budget };
    }
    return undefined;
  }

  #endSpend(spent: number): void {
    for (const { subject } of this.#parts) this.#spend.end(subject, this.#reserved.spend, spent);
  }
}

function refusalOf(
  subject: Subject,
  { limitedBy, limit, retryAfterMs }: RateRefusal,
): LimitRefusal {
  return { ok: false, subject, limitedBy, limit, retryAfterMs };
}

import type { LimitedSubject, Limits } from "@heddle/contracts/limits";
import type { LimitView } from "../rate-limiter.ts";

/** The subject whose limits a call counts for: its key, its project or its model. */
export interface Subject extends LimitedSubject {
  /** Over all masters. */
  readonly limits: Limits;
}

/** What a call takes beside itself: tokens, and nano-units of the budget. */
export interface Amounts {
  readonly tokens: number;
  readonly spend: number;
}

export interface LimitRefusal {
  readonly ok: false;
  readonly subject: Subject;
  readonly limitedBy: "requests" | "tokens" | "concurrency" | "spend" | "keys";
  /** What was counted against: the whole limit, or one master's share of it. */
  readonly limit: number;
  /** Absent if waiting cannot help. */
  readonly retryAfterMs?: number | undefined;
}

/** The rest of the requests and tokens of one subject. */
export interface SubjectView {
  readonly requests: LimitView;
  readonly tokens: LimitView;
}

export type Later<T> = T | Promise<T>;

/** A running call that some subjects count. `finish` or `cancel` must end it. */
export interface Hold {
  readonly ok: true;
  /** Takes the call's amounts of every subject, once, or of none. */
  reserve(amounts: Amounts): Later<LimitRefusal | undefined>;
  /** Replaces what is reserved by a better estimate. */
  correct(amounts: Amounts): void;
  /** Charges the real amounts and ends the call. Later calls do nothing. */
  finish(amounts: Amounts): void;
  /** Ends the call as if it had not been admitted. */
  cancel(): void;
  views(): readonly SubjectView[];
}

/** Counts calls, tokens and spend of subjects against their limits. */
export interface LimitStore {
  /** Counts a call for every subject, or for none. */
  admit(subjects: readonly Subject[]): Later<Hold | LimitRefusal>;
  /** The rest of the limits; uses nothing. */
  views(subjects: readonly Subject[]): readonly SubjectView[];
  /** What is left of the subject's budget, as far as this master knows; undefined without one. */
  budgetLeft(subject: Subject): number | undefined;
}

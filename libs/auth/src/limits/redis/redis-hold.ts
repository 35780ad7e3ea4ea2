import type { EmbeddedHold } from "../embedded-limits.ts";
import type { Amounts, Hold, LimitRefusal, Subject, SubjectView } from "../limit-store.ts";

const NOTHING: Amounts = { tokens: 0, spend: 0 };

/** Signed amounts of a subject. */
export interface Change {
  readonly subject: Subject;
  readonly requests: number;
  readonly tokens: number;
  readonly calls: number;
  readonly spend: number;
}

export interface Taken {
  readonly ok: true;
  readonly views: readonly SubjectView[];
}

/** Where a hold's amounts are counted. */
export interface HoldStore {
  /** Takes amounts in Redis; undefined if it fails. */
  take(
    session: string,
    subjects: readonly Subject[],
    amounts: Amounts,
    calls: 0 | 1,
  ): Promise<Taken | LimitRefusal | undefined>;
  /** Adds signed amounts in the session that counts what this master does. */
  settle(changes: readonly Change[], tokensSession: string): void;
}

interface RedisHoldParts {
  readonly store: HoldStore;
  readonly subjects: readonly Subject[];
  readonly session: string;
  /** The same call in this master's memory: it runs here, whether or not Redis stays. */
  readonly own: EmbeddedHold;
}

/** A call that Redis counts, and this master too. */
export class RedisHold implements Hold {
  readonly ok = true;
  readonly #parts: RedisHoldParts;
  #views: readonly SubjectView[];
  #reserved = NOTHING;
  /** Whether Redis has reserved the tokens; otherwise this master alone has. */
  #inRedis = true;
  #ended = false;

  constructor(parts: RedisHoldParts, views: readonly SubjectView[]) {
    this.#parts = parts;
    this.#views = views;
  }

  async reserve(amounts: Amounts): Promise<LimitRefusal | undefined> {
    const { store, session, subjects, own } = this.#parts;
    const taken = await store.take(session, subjects, amounts, 0);
    if (taken?.ok === false) return taken;
    if (this.#ended) {
      this.#reserved = taken ? amounts : NOTHING;
      this.#settle(NOTHING, { requests: 0, calls: 0 });
      return undefined;
    }
    this.#inRedis = taken !== undefined;
    if (taken) {
      this.#views = taken.views;
      own.correct(this.#ownOf(amounts));
    } else {
      const refusal = own.reserve(amounts);
      if (refusal) return refusal;
    }
    this.#reserved = amounts;
    return undefined;
  }

  correct(amounts: Amounts): void {
    if (this.#ended) return;
    this.#settle(amounts, { requests: 0, calls: 0 });
    this.#parts.own.correct(this.#ownOf(amounts));
    this.#reserved = amounts;
  }

  finish(amounts: Amounts): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#settle(amounts, { requests: 0, calls: -1 });
    this.#parts.own.finish(this.#ownOf(amounts));
  }

  cancel(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#settle(NOTHING, { requests: -1, calls: -1 });
    this.#parts.own.finish(NOTHING);
  }

  views(): readonly SubjectView[] {
    return this.#views;
  }

  #ownOf(amounts: Amounts): Amounts {
    return this.#inRedis ? { tokens: 0, spend: amounts.spend } : amounts;
  }

  #settle(amounts: Amounts, { requests, calls }: Pick<Change, "requests" | "calls">): void {
    const tokens = this.#inRedis ? amounts.tokens - this.#reserved.tokens : 0;
    const spend = amounts.spend - this.#reserved.spend;
    if (tokens === 0 && spend === 0 && calls === 0) return;
    const { store, subjects, session } = this.#parts;
    const changes = subjects.map((subject) => ({ subject, requests, tokens, calls, spend }));
    store.settle(changes, session);
  }
}

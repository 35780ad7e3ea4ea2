import type { Limits } from "@heddle/contracts/limits";
import { subjectId } from "@heddle/contracts/limits";
import { LIMIT_CEILING, type LimitView } from "../../rate-limiter.ts";
import type { EmbeddedHold, EmbeddedLimits } from "../embedded-limits.ts";
import {
  type Amounts,
  type Hold,
  type Later,
  type LimitRefusal,
  type LimitStore,
  type Subject,
  type SubjectView,
} from "../limit-store.ts";
import type { OwnSpend } from "../own-spend.ts";
import { KEEP, SETTLE, TAKE } from "./limit-scripts.ts";
import { type Change, type HoldStore, RedisHold, type Taken } from "./redis-hold.ts";
import { type Argument, type RedisSession, subjectKey } from "./redis-session.ts";

const WINDOW_MS = 60_000;
const DAY_MS = 86_400_000;
/** How long Redis keeps a subject that no call names; masters keep all budgets that are set. */
const KEPT_MS = {
  none: 2 * DAY_MS,
  day: 2 * DAY_MS,
  month: 33 * DAY_MS,
  total: 33 * DAY_MS,
} as const;
/** Subjects whose budget is known; beyond it all are forgotten. */
const MAX_SEEN = 120_000;
/** Subjects that are announced or kept with one command. */
const SUBJECTS_AT_ONCE = 100;

/** What other masters had spent of a budget when Redis last answered. */
interface SeenSpend {
  readonly period: string;
  readonly others: number;
}

export interface RedisLimitsOptions {
  /** For calls without any limit. */
  readonly local: EmbeddedLimits;
  /** For calls while Redis is gone; its share is `shareAlone`. */
  readonly alone: EmbeddedLimits;
  readonly spend: OwnSpend;
  /** This master's share of limits. */
  readonly share: (limits: Limits) => Limits;
  /** All subjects with budgets. */
  readonly budgeted: () => Iterable<Subject>;
  /** The duration of an answered command of a call. */
  readonly observe: (seconds: number) => void;
}

/** Counts in Redis, over all masters; while Redis is gone in this master's memory, its share. */
export class RedisLimits implements LimitStore, HoldStore {
  readonly #options: RedisLimitsOptions;
  readonly #seen = new Map<string, SeenSpend>();
  /** The subjects whose running calls the present session has received. */
  readonly #announced = new Set<string>();
  /** Keyed by subject and period: the spend that it has received. */
  readonly #announcedSpend = new Set<string>();
  /** Keyed by subject and period: what this master may have spent by the end while it counts alone. */
  readonly #allowed = new Map<string, number>();
  #session: RedisSession | undefined;
  #hasAdmittedAlone = false;

  constructor(options: RedisLimitsOptions) {
    this.#options = options;
  }

  /** Counts in Redis whenever this session is open. */
  use(session: RedisSession): void {
    this.#session = session;
  }

  /** Whether calls were admitted without Redis since the last session began. */
  get hasAdmittedAlone(): boolean {
    return this.#hasAdmittedAlone;
  }

  opened(): void {
    this.#hasAdmittedAlone = false;
    this.#allowed.clear();
  }

  /** What this master may use of a limit while Redis is gone. */
  shareAlone(subject: Subject): Limits {
    const { share, spend } = this.#options;
    const limits = share(subject.limits);
    const { budget } = subject.limits;
    if (!budget) return limits;
    const period = spend.periodOf(budget.period);
    const seen = this.#seen.get(subjectId(subject));
    if (seen?.period !== period) return limits;
    const at = `${subjectId(subject)} ${period} ${budget.amount}`;
    let amount = this.#allowed.get(at);
    if (amount === undefined) {
      const own = spend.of(subject);
      const left = Math.max(0, budget.amount - seen.others - own);
      amount = own + (share({ budget: { ...budget, amount: left } }).budget?.amount ?? 0);
      if (this.#session?.id === undefined) this.#allowed.set(at, amount);
    }
    return { ...limits, budget: { ...budget, amount } };
  }

  admit(subjects: readonly Subject[]): Later<Hold | LimitRefusal> {
    const { local } = this.#options;
    if (!subjects.some(isLimited)) return local.admit(subjects);
    const session = this.#session?.id;
    return session === undefined ? this.#admitAlone(subjects) : this.#admit(session, subjects);
  }

  views(subjects: readonly Subject[]): readonly SubjectView[] {
    const { local, alone } = this.#options;
    return (subjects.some(isLimited) ? alone : local).views(subjects);
  }

  budgetLeft(subject: Subject): number | undefined {
    const { budget } = subject.limits;
    if (!budget) return undefined;
    const { alone, spend } = this.#options;
    const seen = this.#seen.get(subjectId(subject));
    if (this.#session?.id === undefined) return alone.budgetLeft(subject);
    const others = seen?.period === spend.periodOf(budget.period) ? seen.others : 0;
    return budget.amount - others - spend.of(subject);
  }

  /** Sends a session what this master has spent and runs, before calls use it. */
  async announce(session: string): Promise<void> {
    this.#announced.clear();
    this.#announcedSpend.clear();
    await this.#send(session);
  }

  async #send(session: string): Promise<void> {
    let some: Subject[] = [];
    const send = async () => {
      const sent = some;
      some = [];
      if (sent.length === 0) return;
      const args = sent.flatMap((subject) => this.#takeArguments(subject, NOTHING, 0));
      await this.#session?.announce(session, TAKE, sent.map(keyOf), args);
    };
    for (const subject of this.#options.budgeted()) {
      if (this.#isNew(subject) && this.#options.spend.of(subject) > 0) some.push(subject);
      if (some.length >= SUBJECTS_AT_ONCE) await send();
    }
    await send();
  }

  /** Renews the lifetime of every budget that the session knows. */
  async keep(session: string): Promise<void> {
    let some: { readonly subject: Subject; readonly args: Argument[] }[] = [];
    const send = async () => {
      const sent = some;
      some = [];
      if (sent.length === 0) return;
      const keys = sent.map(({ subject }) => keyOf(subject));
      const args = sent.flatMap((each) => each.args);
      await this.#session?.announce(session, KEEP, keys, args);
    };
    for (const subject of this.#options.budgeted()) {
      const { budget } = subject.limits;
      if (!budget || this.#isNew(subject)) continue;
      const period = this.#options.spend.periodOf(budget.period);
      some.push({ subject, args: [period, KEPT_MS[budget.period]] });
      if (some.length >= SUBJECTS_AT_ONCE) await send();
    }
    await send();
  }

  /** Sends the open session the budgets that it does not know yet, and forgets those that ended. */
  limitsChanged(): void {
    const session = this.#session?.id;
    if (session === undefined) return;
    const { budgeted, spend } = this.#options;
    const present = new Set<string>();
    for (const subject of budgeted()) {
      const { budget } = subject.limits;
      if (budget) present.add(`${subjectId(subject)} ${spend.periodOf(budget.period)}`);
    }
    for (const id of this.#announcedSpend) {
      if (!present.has(id)) this.#announcedSpend.delete(id);
    }
    this.#send(session).catch(() => undefined);
  }

  #admitAlone(subjects: readonly Subject[]): EmbeddedHold | LimitRefusal {
    this.#hasAdmittedAlone = true;
    return this.#options.alone.admit(subjects);
  }

  async #admit(session: string, subjects: readonly Subject[]): Promise<Hold | LimitRefusal> {
    const taken = await this.take(session, subjects, NOTHING, 1);
    if (taken === undefined) return this.#admitAlone(subjects);
    if (!taken.ok) return taken;
    const own = this.#options.alone.adopt(subjects);
    return own.ok ? new RedisHold({ store: this, subjects, session, own }, taken.views) : own;
  }

  /** Takes amounts in Redis; undefined if it fails. */
  async take(
    session: string,
    subjects: readonly Subject[],
    amounts: Amounts,
    calls: 0 | 1,
  ): Promise<Taken | LimitRefusal | undefined> {
    const args = subjects.flatMap((subject) => this.#takeArguments(subject, amounts, calls));
    const startedMs = performance.now();
    let reply: string[];
    try {
      reply = (await this.#session?.run(session, TAKE, subjects.map(keyOf), args)) as string[];
    } catch {
      return undefined;
    }
    this.#options.observe((performance.now() - startedMs) / 1000);
    return this.#read(reply, subjects, amounts);
  }

  /** Adds signed amounts in the session that counts what this master does. */
  settle(changes: readonly Change[], tokensSession: string): void {
    const session = this.#session?.begun;
    if (session === undefined) return;
    const args = changes.flatMap(({ subject, requests, tokens, calls, spend }) => {
      const { requestsPerMinute: rpm, tokensPerMinute: tpm, budget } = subject.limits;
      const id = subjectId(subject);
      const period = budget && this.#options.spend.periodOf(budget.period);
      const isKnown = period !== undefined && this.#announcedSpend.has(`${id} ${period}`);
      const same = session === tokensSession;
      return [
        same && rpm ? (requests * WINDOW_MS) / rpm : 0,
        same && tpm ? (tokens * WINDOW_MS) / tpm : 0,
        this.#announced.has(id) ? calls : 0,
        isKnown ? period : "",
        spend,
      ];
    });
    const keys = changes.map(({ subject }) => keyOf(subject));
    this.#session?.run(session, SETTLE, keys, args).catch(() => undefined);
  }

  /** The first command of a session for a subject says what this master has of it. */
  #takeArguments(subject: Subject, amounts: Amounts, calls: 0 | 1): Argument[] {
    const { spend, alone } = this.#options;
    const { requestsPerMinute, tokensPerMinute, concurrency, budget } = subject.limits;
    const id = subjectId(subject);
    const period = budget ? spend.periodOf(budget.period) : "";
    const isNew = !this.#announced.has(id);
    const isNewSpend = budget !== undefined && !this.#announcedSpend.has(`${id} ${period}`);
    this.#announced.add(id);
    if (budget) this.#announcedSpend.add(`${id} ${period}`);
    return [
      requestsPerMinute ?? -1,
      tokensPerMinute ?? -1,
      concurrency ?? -1,
      budget?.amount ?? -1,
      period,
      calls,
      amounts.tokens,
      amounts.spend,
      isNew ? alone.runningOf(subject) : -1,
      isNewSpend ? spend.of(subject) : -1,
      KEPT_MS[budget?.period ?? "none"],
    ];
  }

  #isNew(subject: Subject): boolean {
    const { budget } = subject.limits;
    const period = budget ? this.#options.spend.periodOf(budget.period) : "";
    return !this.#announcedSpend.has(`${subjectId(subject)} ${period}`);
  }

  #read(reply: string[], subjects: readonly Subject[], amounts: Amounts): Taken | LimitRefusal {
    const isTaken = reply[0] === "ok";
    const at = isTaken ? 1 : 4;
    const views = subjects.map((subject, i) => {
      const [requestsMs, tokensMs, others] = reply.slice(at + 3 * i, at + 3 * i + 3).map(Number);
      this.#see(subject, others ?? 0);
      return viewOf(subject, requestsMs ?? 0, tokensMs ?? 0);
    });
    if (isTaken) return { ok: true, views };
    const subject = subjects[Number(reply[1])] as Subject;
    return refusalOf(subject, reply[2] as LimitRefusal["limitedBy"], Number(reply[3]), amounts);
  }

  #see(subject: Subject, others: number): void {
    const { budget } = subject.limits;
    if (!budget) return;
    if (this.#seen.size >= MAX_SEEN) this.#seen.clear();
    const period = this.#options.spend.periodOf(budget.period);
    this.#seen.set(subjectId(subject), { period, others });
  }
}

const NOTHING: Amounts = { tokens: 0, spend: 0 };

function isLimited({ limits }: Subject): boolean {
  const { requestsPerMinute, tokensPerMinute, concurrency, budget } = limits;
  return [requestsPerMinute, tokensPerMinute, concurrency, budget].some((it) => it !== undefined);
}

function keyOf(subject: Subject): string {
  return subjectKey(subjectId(subject));
}

function viewOf({ limits }: Subject, requestsMs: number, tokensMs: number): SubjectView {
  const view = (limit: number | undefined, ceiling: number, resetMs: number): LimitView => {
    if (limit === undefined) return { limit: ceiling, remaining: ceiling, resetMs: 0 };
    const remaining = Math.floor(((WINDOW_MS - resetMs) * limit) / WINDOW_MS + 1e-3);
    return { limit, remaining: Math.max(0, Math.min(limit, remaining)), resetMs };
  };
  return {
    requests: view(limits.requestsPerMinute, LIMIT_CEILING.requestsPerMinute, requestsMs),
    tokens: view(limits.tokensPerMinute, LIMIT_CEILING.tokensPerMinute, tokensMs),
  };
}

function refusalOf(
  subject: Subject,
  limitedBy: LimitRefusal["limitedBy"],
  waitMs: number,
  amounts: Amounts,
): LimitRefusal {
  const { requestsPerMinute, tokensPerMinute, concurrency, budget } = subject.limits;
  const base = { ok: false, subject, limitedBy } as const;
  if (limitedBy === "concurrency") return { ...base, limit: concurrency ?? 0, retryAfterMs: 1000 };
  if (limitedBy === "spend") return { ...base, limit: budget?.amount ?? 0 };
  const limit = (limitedBy === "tokens" ? tokensPerMinute : requestsPerMinute) ?? 0;
  const isTooMuch = limitedBy === "tokens" && amounts.tokens > limit;
  return { ...base, limit, retryAfterMs: isTooMuch ? undefined : Math.max(1, waitMs) };
}

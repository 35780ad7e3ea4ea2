import type { Limits } from "@heddle/contracts/limits";

/** The limits of one id; absent means the common ceiling, 0 means none allowed. */
export type RateLimits = Omit<Limits, "budget">;

/** A master's rank among those that divide each limit; a rank from `count` on has no share. */
export interface LimitShare {
  readonly rank: number;
  readonly count: number;
}

/** One master's share of the limits; over all masters the shares sum to exactly the limits. */
export function shareOfLimits(limits: Limits, { rank, count }: LimitShare): Limits {
  const part = (limit: number | undefined) => {
    if (limit === undefined) return undefined;
    return rank < count ? Math.floor(limit / count) + (rank < limit % count ? 1 : 0) : 0;
  };
  return {
    requestsPerMinute: part(limits.requestsPerMinute),
    tokensPerMinute: part(limits.tokensPerMinute),
    concurrency: part(limits.concurrency),
    ...(limits.budget && {
      budget: { ...limits.budget, amount: part(limits.budget.amount) ?? 0 },
    }),
  };
}

/** The rest of a limit, and when it is full again. */
export interface LimitView {
  readonly limit: number;
  readonly remaining: number;
  readonly resetMs: number;
}

export interface RateRefusal {
  readonly ok: false;
  readonly limitedBy: "requests" | "tokens" | "concurrency" | "keys";
  readonly limit: number;
  /** Absent if waiting cannot help: the request alone exceeds the limit. */
  readonly retryAfterMs?: number | undefined;
}

/** Apply even to a key without limits, so that every answer can state an enforced limit. */
export const LIMIT_CEILING = {
  requestsPerMinute: 10_000_000,
  tokensPerMinute: 10_000_000_000,
  concurrency: 100_000,
} as const;

const WINDOW_MS = 60_000;
/** Rounding slack: a whole burst must fit although the sums are floating point. */
const SLACK_MS = 1e-6;

export interface RateLimiterOptions {
  /** A monotonic clock in milliseconds. */
  readonly now: () => number;
  /** Bound on tracked keys; idle ones are dropped first. */
  readonly maxKeys: number;
}

/**
 * The in-memory rate limiter: requests and tokens per minute by the generic cell rate algorithm
 * (ITU-T I.371), and concurrent calls. Tokens are reserved at admission and corrected by the real
 * use, so concurrent calls cannot overspend. A refused call is not charged.
 */
export class RateLimiter {
  readonly #options: RateLimiterOptions;
  readonly #usage = new Map<string, KeyUsage>();
  /** Before it no limit is full; see `empty`. */
  #emptyUntilMs = 0;

  constructor(options: RateLimiterOptions) {
    this.#options = options;
  }

  /** Tracked keys. */
  get size(): number {
    return this.#usage.size;
  }

  /** Admits a call and reserves its tokens, or returns the violated limit. */
  admit(id: string, limits: RateLimits, tokens = 0): RateReservation | RateRefusal {
    const now = this.#options.now();
    const usage = this.#usageOf(id, now);
    if (!usage)
      return { ok: false, limitedBy: "keys", limit: this.#options.maxKeys, retryAfterMs: 1000 };
    this.#emptied(usage, limits);
    const refused = refusedCall(usage, limits, now);
    if (refused) return refused;
    const requestLimit = limits.requestsPerMinute ?? LIMIT_CEILING.requestsPerMinute;
    const tokenLimit = limits.tokensPerMinute ?? LIMIT_CEILING.tokensPerMinute;
    usage.requestsUntilMs = Math.max(usage.requestsUntilMs, now) + WINDOW_MS / requestLimit;
    // What it will have used counts from now on, also where it reserves nothing.
    usage.tokensUntilMs = Math.max(usage.tokensUntilMs, now);
    usage.running++;
    const reservation = new RateReservation(usage, requestLimit, tokenLimit, this.#options.now);
    const lacking = tokens > 0 ? reservation.reserve(tokens) : undefined;
    if (lacking) reservation.cancel();
    return lacking ?? reservation;
  }

  /** Counts a running call that something else has admitted; undefined at the bound on ids. */
  adopt(id: string, limits: RateLimits): RateReservation | undefined {
    const now = this.#options.now();
    const usage = this.#usageOf(id, now);
    if (!usage) return undefined;
    usage.tokensUntilMs = Math.max(usage.tokensUntilMs, now);
    usage.running++;
    const requestLimit = limits.requestsPerMinute ?? LIMIT_CEILING.requestsPerMinute;
    const tokenLimit = limits.tokensPerMinute ?? LIMIT_CEILING.tokensPerMinute;
    return new RateReservation(usage, requestLimit, tokenLimit, this.#options.now);
  }

  runningOf(id: string): number {
    return this.#usage.get(id)?.running ?? 0;
  }

  /** All limits are used up now: what was admitted elsewhere may have used them. */
  empty(): void {
    this.#emptyUntilMs = this.#options.now() + WINDOW_MS;
  }

  #emptied(usage: KeyUsage, limits: RateLimits): void {
    const untilMs = this.#emptyUntilMs;
    if (limits.requestsPerMinute !== undefined) {
      usage.requestsUntilMs = Math.max(usage.requestsUntilMs, untilMs);
    }
    if (limits.tokensPerMinute !== undefined) {
      usage.tokensUntilMs = Math.max(usage.tokensUntilMs, untilMs);
    }
  }

  /** The rest of a key's limits; uses nothing. */
  view(id: string, limits: RateLimits): { requests: LimitView; tokens: LimitView } {
    const now = this.#options.now();
    const usage = this.#usage.get(id);
    if (usage) this.#emptied(usage, limits);
    const requestLimit = limits.requestsPerMinute ?? LIMIT_CEILING.requestsPerMinute;
    const tokenLimit = limits.tokensPerMinute ?? LIMIT_CEILING.tokensPerMinute;
    return {
      requests: viewOf(usage?.requestsUntilMs ?? 0, now, requestLimit),
      tokens: viewOf(usage?.tokensUntilMs ?? 0, now, tokenLimit),
    };
  }

  #usageOf(id: string, now: number): KeyUsage | undefined {
    const known = this.#usage.get(id);
    if (known) return known;
    if (this.#usage.size >= this.#options.maxKeys) this.#forgetIdle(now);
    if (this.#usage.size >= this.#options.maxKeys) return undefined;
    const fresh: KeyUsage = { requestsUntilMs: 0, tokensUntilMs: 0, running: 0 };
    this.#usage.set(id, fresh);
    return fresh;
  }

  /** An idle key's usage equals an unknown key's, so dropping it changes no decision. */
  #forgetIdle(now: number): void {
    for (const [id, usage] of this.#usage) {
      const idle =
        usage.running === 0 && usage.requestsUntilMs <= now && usage.tokensUntilMs <= now;
      if (idle) this.#usage.delete(id);
    }
  }
}

/** Theoretical arrival times: all past use is refilled once the clock reaches them. */
interface KeyUsage {
  requestsUntilMs: number;
  tokensUntilMs: number;
  running: number;
}

/** An admitted call's share of its key's limits. `finish` must be called once it has ended. */
export class RateReservation {
  readonly ok = true;
  readonly #usage: KeyUsage;
  readonly #requestLimit: number;
  readonly #tokenLimit: number;
  readonly #now: () => number;
  #reservedTokens = 0;
  #finished = false;

  constructor(usage: KeyUsage, requestLimit: number, tokenLimit: number, now: () => number) {
    this.#usage = usage;
    this.#requestLimit = requestLimit;
    this.#tokenLimit = tokenLimit;
    this.#now = now;
  }

  get reservedTokens(): number {
    return this.#reservedTokens;
  }

  /** Reserves the call's tokens, once; on a refusal nothing is reserved. */
  reserve(tokens: number): RateRefusal | undefined {
    const now = this.#now();
    const tokenWaitMs = waitMs(this.#usage.tokensUntilMs, now, this.#tokenLimit, tokens);
    if (tokenWaitMs > 0) return refusal("tokens", this.#tokenLimit, tokens, tokenWaitMs);
    this.#usage.tokensUntilMs = Math.max(this.#usage.tokensUntilMs, now);
    this.correct(tokens);
    return undefined;
  }

  /** Replaces the reserved number of tokens by a better estimate. */
  correct(tokens: number): void {
    if (this.#finished || tokens === this.#reservedTokens) return;
    const differenceMs = ((tokens - this.#reservedTokens) * WINDOW_MS) / this.#tokenLimit;
    this.#usage.tokensUntilMs = Math.max(0, this.#usage.tokensUntilMs + differenceMs);
    this.#reservedTokens = tokens;
  }

  /** Charges the real use and releases the call's slot. Later calls do nothing. */
  finish(tokens: number): void {
    if (this.#finished) return;
    this.correct(tokens);
    this.#finished = true;
    this.#usage.running--;
  }

  /** Reverts the admission of the call. */
  cancel(): void {
    if (this.#finished) return;
    this.finish(0);
    const untilMs = this.#usage.requestsUntilMs - WINDOW_MS / this.#requestLimit;
    this.#usage.requestsUntilMs = Math.max(0, untilMs);
  }

  view(): { requests: LimitView; tokens: LimitView } {
    const now = this.#now();
    return {
      requests: viewOf(this.#usage.requestsUntilMs, now, this.#requestLimit),
      tokens: viewOf(this.#usage.tokensUntilMs, now, this.#tokenLimit),
    };
  }
}

function refusedCall(usage: KeyUsage, limits: RateLimits, now: number): RateRefusal | undefined {
  const concurrency = limits.concurrency ?? LIMIT_CEILING.concurrency;
  if (usage.running >= concurrency) {
    const retryAfterMs = concurrency > 0 ? 1000 : undefined;
    return { ok: false, limitedBy: "concurrency", limit: concurrency, retryAfterMs };
  }
  const requestLimit = limits.requestsPerMinute ?? LIMIT_CEILING.requestsPerMinute;
  const requestWaitMs = waitMs(usage.requestsUntilMs, now, requestLimit, 1);
  return requestWaitMs > 0 ? refusal("requests", requestLimit, 1, requestWaitMs) : undefined;
}

function waitMs(untilMs: number, now: number, limit: number, cost: number): number {
  const usedMs = Math.max(untilMs, now) + (cost * WINDOW_MS) / limit - now;
  return usedMs > WINDOW_MS + SLACK_MS ? usedMs - WINDOW_MS : 0;
}

function refusal(
  limitedBy: "requests" | "tokens",
  limit: number,
  cost: number,
  retryAfterMs: number,
): RateRefusal {
  return { ok: false, limitedBy, limit, retryAfterMs: cost > limit ? undefined : retryAfterMs };
}

function viewOf(untilMs: number, now: number, limit: number): LimitView {
  const resetMs = Math.max(0, untilMs - now);
  const remaining = Math.floor(((WINDOW_MS - resetMs) * limit) / WINDOW_MS + SLACK_MS);
  return { limit, remaining: Math.max(0, Math.min(limit, remaining)), resetMs };
}

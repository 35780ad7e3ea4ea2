import {
  type LimitShare,
  type RateLimiter,
  type RateLimits,
  type RateRefusal,
  RateReservation,
  shareOfLimits,
} from "@heddle/auth/rate-limiter";
import { AppError } from "@heddle/base/errors";
import type { ApiKeyRecord } from "@heddle/control/state";
import type { GroupStatus } from "../../control-plane/control-group.ts";
import { rateLimitHeaders } from "./rate-limit-headers.ts";

/** After a change of the masters the smaller share applies for as long as a limit's window. */
const CHANGE_HOLD_MS = 60_000;

/** Changes that are kept. */
const MAX_CHANGES = 16;

/** The masters that divide the limits, as this one sees them. */
interface Division {
  /** By id, learners included: a non-voter takes calls too. */
  readonly ids: readonly number[];
  readonly names: readonly string[];
  /** This master's position; a non-member has no share. */
  readonly rank: number;
}

const ALONE: Division = { ids: [0], names: ["this one"], rank: 0 };

export interface KeyLimitsOptions {
  readonly limiter: RateLimiter;
  /** The group of masters; absent for a single master. */
  readonly group?: (() => GroupStatus) | undefined;
  /** A monotonic clock in milliseconds. */
  readonly now: () => number;
}

/**
 * The limits of API keys, for calls of all routes. Every master counts its share of each limit by
 * itself; the shares of all masters sum to the limit, so no call waits for another master.
 */
export class KeyLimiter {
  readonly #options: KeyLimitsOptions;
  #members: GroupStatus["members"] = [];
  #division: Division = ALONE;
  #before: { readonly division: Division; readonly untilMs: number }[] = [];

  constructor(options: KeyLimitsOptions) {
    this.#options = options;
  }

  /** This master's share of the key's limits. */
  limitsOf({ limits }: Pick<ApiKeyRecord, "limits">): RateLimits {
    this.#detectChange();
    const nowMs = this.#options.now();
    while (this.#before[0] && this.#before[0].untilMs < nowMs) this.#before.shift();
    const earlier = this.#before.map(({ division }) => shareOf(limits, division));
    return earlier.reduce(least, shareOf(limits, this.#division));
  }

  /** Counts a call of the key. Throws `rate_limit_exceeded` without counting it. */
  admit(key: ApiKeyRecord): RateReservation {
    const admitted = this.#options.limiter.admit(key.id, this.limitsOf(key));
    if (admitted instanceof RateReservation) return admitted;
    throw this.#refused(admitted, key, 0);
  }

  /** Reserves the tokens of a call. Throws `rate_limit_exceeded` and no longer counts the call. */
  reserve(reservation: RateReservation, key: ApiKeyRecord, tokens: number): void {
    const refusal = reservation.reserve(tokens);
    if (!refusal) return;
    reservation.cancel();
    throw this.#refused(refusal, key, tokens);
  }

  /** The headers with the rest of the limits on this master. */
  headersOf(key: ApiKeyRecord): Record<string, string> {
    return rateLimitHeaders(this.#options.limiter.view(key.id, this.limitsOf(key)));
  }

  #refused(refusal: RateRefusal, key: ApiKeyRecord, tokens: number): AppError {
    const { limitedBy, retryAfterMs } = refusal;
    if (limitedBy === "keys") {
      return new AppError("overloaded", "Too many keys are in use at once.", { retryAfterMs });
    }
    const limit = this.#limitText(refusal, key);
    const advice = this.#advice(refusal, key);
    if (limitedBy === "concurrency") {
      const message = `Rate limit reached for the API key ${key.id} on calls at once. Limit: ${limit}. ${advice}`;
      return new AppError("rate_limit_exceeded", message, { retryAfterMs });
    }
    const requested = limitedBy === "tokens" ? ` Requested: ${tokens} (input and output).` : "";
    const message = `Rate limit reached for the API key ${key.id} on ${limitedBy} per minute. Limit: ${limit}.${requested} ${advice}`;
    return new AppError("rate_limit_exceeded", message, { retryAfterMs });
  }

  #limitText({ limit, limitedBy }: RateRefusal, key: ApiKeyRecord): string {
    const { names, rank } = this.#division;
    if (names.length === 1) return String(limit);
    const whole = wholeLimit(key, limitedBy) ?? limit;
    return `${whole} over ${names.length} masters, of which ${names[rank] ?? "this one"} counts ${limit}`;
  }

  #advice({ limit, limitedBy, retryAfterMs }: RateRefusal, key: ApiKeyRecord): string {
    const { names } = this.#division;
    if (limit === 0 && names.length > 1) {
      const holders = names.slice(0, wholeLimit(key, limitedBy) ?? 0).join(", ");
      return `Call ${holders}, or have the limit raised to ${names.length} or more.`;
    }
    if (limitedBy === "concurrency") return "Wait for one to end.";
    if (retryAfterMs === undefined) return "Ask for less.";
    return `Try again in ${Math.ceil(retryAfterMs)}ms.`;
  }

  /** Detects a change of the masters. */
  #detectChange(): void {
    const status = this.#options.group?.();
    if (!status || status.members === this.#members) return;
    const isFirst = this.#members.length === 0;
    this.#members = status.members;
    const division = divisionOf(status);
    const { ids, rank } = this.#division;
    if (rank === division.rank && String(ids) === String(division.ids)) return;
    const untilMs = this.#options.now() + CHANGE_HOLD_MS;
    if (!isFirst) this.#before.push({ division: this.#division, untilMs });
    if (this.#before.length > MAX_CHANGES) this.#before.shift();
    this.#division = division;
  }
}

function divisionOf({ members, id }: GroupStatus): Division {
  const sorted = [...members].sort((a, b) => a.id - b.id);
  const ids = sorted.map((member) => member.id);
  const rank = ids.indexOf(id);
  return {
    ids,
    names: sorted.map(({ name }) => name),
    rank: rank < 0 ? Number.POSITIVE_INFINITY : rank,
  };
}

function shareOf(limits: RateLimits, { ids, rank }: Division): RateLimits {
  const share: LimitShare = { rank, count: Math.max(1, ids.length) };
  return shareOfLimits(limits, share);
}

function least(one: RateLimits, other: RateLimits): RateLimits {
  const lesser = (a: number | undefined, b: number | undefined) =>
    a === undefined || b === undefined ? a : Math.min(a, b);
  return {
    requestsPerMinute: lesser(one.requestsPerMinute, other.requestsPerMinute),
    tokensPerMinute: lesser(one.tokensPerMinute, other.tokensPerMinute),
    concurrency: lesser(one.concurrency, other.concurrency),
  };
}

function wholeLimit({ limits }: ApiKeyRecord, by: RateRefusal["limitedBy"]): number | undefined {
  if (by === "concurrency") return limits.concurrency;
  return by === "tokens" ? limits.tokensPerMinute : limits.requestsPerMinute;
}

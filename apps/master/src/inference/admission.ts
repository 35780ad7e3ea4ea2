import { type RateLimiter, type Refusal, Reservation } from "@heddle/auth/rate-limiter";
import { AppError } from "@heddle/base/errors";
import type { ApiKeyRecord } from "@heddle/control/state";
import { rateLimitHeaders } from "./rate-limit-headers.ts";

/** What a call may use: the tokens of its prompt, as estimated, and of its whole output. */
export interface TokenBudget {
  readonly promptTokens: number;
  /** Over all choices. */
  readonly outputTokens: number;
}

export interface Admitted {
  readonly reservation: Reservation;
  readonly headers: Record<string, string>;
}

/** Told of a refusal, with the headers that go with it, before it is thrown. */
export type OnRefused = (error: AppError, headers: Record<string, string>) => void;

/** Output reserved for a call that names no bound, per choice. */
const DEFAULT_OUTPUT_TOKENS = 4096;

/**
 * The output bound of each choice. A key with a limit on tokens gets one even where the request
 * names none: without a bound its calls could overspend what was reserved for them.
 */
export function boundOutput(
  key: ApiKeyRecord,
  asked: number | undefined,
  promptTokens: number,
  choices: number,
): number | undefined {
  const limit = key.limits.tokensPerMinute;
  if (asked !== undefined || limit === undefined) return asked;
  const affordable = Math.floor((limit - promptTokens) / choices);
  return Math.max(1, Math.min(DEFAULT_OUTPUT_TOKENS, affordable));
}

/** Reserves a call's share of its key's limits. Throws `rate_limit_exceeded`; sets no charge then. */
export function admit(
  limiter: RateLimiter,
  key: ApiKeyRecord,
  budget: TokenBudget,
  onRefused: OnRefused,
): Admitted {
  const admitted = limiter.admit(key.id, key.limits, budget.promptTokens + budget.outputTokens);
  if (admitted instanceof Reservation) {
    return { reservation: admitted, headers: rateLimitHeaders(admitted.view()) };
  }
  const error = refused(admitted, key, budget);
  onRefused(error, rateLimitHeaders(limiter.view(key.id, key.limits)));
  throw error;
}

/** Throws where a limit stands against a call already before its body tells what it asks for. */
export function checkCalls(limiter: RateLimiter, key: ApiKeyRecord, onRefused: OnRefused): void {
  const refusal = limiter.refusalOf(key.id, key.limits);
  if (!refusal) return;
  const error = refused(refusal, key, { promptTokens: 0, outputTokens: 0 });
  onRefused(error, rateLimitHeaders(limiter.view(key.id, key.limits)));
  throw error;
}

function refused(refusal: Refusal, key: ApiKeyRecord, budget: TokenBudget): AppError {
  const { limitedBy, limit, retryAfterMs } = refusal;
  if (limitedBy === "keys") {
    return new AppError("overloaded", "Too many keys are in use at once.", { retryAfterMs });
  }
  if (limitedBy === "concurrency") {
    const message = `The API key ${key.id} has ${limit} calls running, its limit. Wait for one to end.`;
    return new AppError("rate_limit_exceeded", message, { retryAfterMs });
  }
  const asked = budget.promptTokens + budget.outputTokens;
  const requested = limitedBy === "tokens" ? ` Requested: ${asked} (input and output).` : "";
  const advice =
    retryAfterMs === undefined ? "Ask for less." : `Try again in ${Math.ceil(retryAfterMs)}ms.`;
  const message = `Rate limit reached for the API key ${key.id} on ${limitedBy} per minute. Limit: ${limit}.${requested} ${advice}`;
  return new AppError("rate_limit_exceeded", message, { retryAfterMs });
}

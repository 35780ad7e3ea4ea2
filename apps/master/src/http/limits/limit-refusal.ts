import type { LimitRefusal } from "@heddle/auth/limits/limit-store";
import { AppError } from "@heddle/base/errors";
import { type Limits, NANOS, periodEndMs } from "@heddle/contracts/limits";
import type { LimitDivision } from "./limit-division.ts";

export interface RefusedCall {
  readonly refusal: LimitRefusal;
  readonly division: LimitDivision;
  /** Asked for, input and output. */
  readonly tokens?: number;
  /** What they may cost, in nano-units. */
  readonly spend?: number;
  /** What is left of the budget, in nano-units. */
  readonly left: number | undefined;
}

const NAMES = { key: "API key", project: "project", model: "model" } as const;

/** The error of a call that a limit refuses. */
export function limitError(refused: RefusedCall): AppError {
  const { refusal, tokens = 0 } = refused;
  const { subject, limitedBy, retryAfterMs } = refusal;
  if (limitedBy === "keys") {
    return new AppError("overloaded", "Too many keys are in use at once.", { retryAfterMs });
  }
  if (limitedBy === "spend") return new AppError("insufficient_quota", budgetText(refused));
  const what = limitedBy === "concurrency" ? "calls at once" : `${limitedBy} per minute`;
  const requested = limitedBy === "tokens" ? ` Requested: ${tokens} (input and output).` : "";
  const message = `Rate limit reached for the ${NAMES[subject.kind]} ${subject.name} on ${what}. Limit: ${limitText(refused)}.${requested} ${adviceOf(refused)}`;
  return new AppError("rate_limit_exceeded", message, { retryAfterMs });
}

function budgetText({ refusal, spend = 0, left = 0, division }: RefusedCall): string {
  const { subject, limit } = refusal;
  const period = subject.limits.budget?.period ?? "total";
  const whole = subject.limits.budget?.amount ?? limit;
  const of =
    whole === limit
      ? `${limit / NANOS}`
      : `${limit / NANOS}, which ${division.ownName} has of ${whole / NANOS}`;
  const end = periodEndMs(period, Date.now());
  const until = end === undefined ? "" : `, or wait until ${new Date(end).toISOString()}`;
  return `The budget of the ${NAMES[subject.kind]} ${subject.name} (${period}) has ${Math.max(0, left) / NANOS} left of ${of}, and this call may cost ${spend / NANOS}. Ask for fewer tokens, have the budget raised${until}.`;
}

function limitText({ refusal: { limit, limitedBy, subject }, division }: RefusedCall): string {
  const whole = wholeLimit(subject.limits, limitedBy) ?? limit;
  if (division.names.length === 1 || whole === limit) return String(limit);
  return `${whole} over ${division.names.length} masters, of which ${division.ownName} counts ${limit}`;
}

function adviceOf({ refusal, division: { names } }: RefusedCall): string {
  const { limit, limitedBy, retryAfterMs, subject } = refusal;
  if (limit === 0 && names.length > 1) {
    const holders = names.slice(0, wholeLimit(subject.limits, limitedBy) ?? 0).join(", ");
    return `Call ${holders}, or have the limit raised to ${names.length} or more.`;
  }
  if (limitedBy === "concurrency") return "Wait for one to end.";
  if (retryAfterMs === undefined) return "Ask for less.";
  return `Try again in ${Math.ceil(retryAfterMs)}ms.`;
}

function wholeLimit(limits: Limits, by: LimitRefusal["limitedBy"]): number | undefined {
  if (by === "concurrency") return limits.concurrency;
  return by === "tokens" ? limits.tokensPerMinute : limits.requestsPerMinute;
}

import type { LimitedView, LimitSettings, LimitsView } from "@heddle/contracts/api/limits/limits";
import {
  type LimitedSubject,
  type Limits,
  NANOS,
  NANOS_PER_MILLION,
  type Prices,
  subjectId,
} from "@heddle/contracts/limits";
import type { LimitsRecord } from "@heddle/control/state";

/** Limits as a request gives them. */
export function limitsOf(settings: Omit<LimitSettings, "prices">): Limits {
  const { requests_per_minute, tokens_per_minute, concurrency, budget } = settings;
  return {
    requestsPerMinute: requests_per_minute,
    tokensPerMinute: tokens_per_minute,
    concurrency,
    ...(budget && { budget: { ...budget, amount: Math.round(budget.amount * NANOS) } }),
  };
}

/** Prices of a million tokens as prices of one. */
export function pricesOf(prices: { readonly input: number; readonly output: number }): Prices {
  return {
    input: Math.round(prices.input * NANOS_PER_MILLION),
    output: Math.round(prices.output * NANOS_PER_MILLION),
  };
}

export function viewLimits({ budget, ...limits }: Limits): LimitsView {
  return {
    requests_per_minute: limits.requestsPerMinute ?? null,
    tokens_per_minute: limits.tokensPerMinute ?? null,
    concurrency: limits.concurrency ?? null,
    budget: budget ? { ...budget, amount: budget.amount / NANOS } : null,
  };
}

export function viewLimited(
  subject: LimitedSubject,
  { limits, prices }: LimitsRecord,
): LimitedView {
  return {
    object: "limits",
    id: subjectId(subject),
    kind: subject.kind,
    name: subject.name,
    project: subject.project ?? null,
    ...viewLimits(limits),
    prices: prices
      ? { input: prices.input / NANOS_PER_MILLION, output: prices.output / NANOS_PER_MILLION }
      : null,
  };
}

import type { LimitView } from "@heddle/auth/rate-limiter";

/** The six headers by which OpenAI's clients pace themselves. */
export function rateLimitHeaders(view: {
  readonly requests: LimitView;
  readonly tokens: LimitView;
}): Record<string, string> {
  return {
    "x-ratelimit-limit-requests": String(view.requests.limit),
    "x-ratelimit-limit-tokens": String(view.tokens.limit),
    "x-ratelimit-remaining-requests": String(view.requests.remaining),
    "x-ratelimit-remaining-tokens": String(view.tokens.remaining),
    "x-ratelimit-reset-requests": durationText(view.requests.resetMs),
    "x-ratelimit-reset-tokens": durationText(view.tokens.resetMs),
  };
}

/** A duration as OpenAI writes it: `120ms`, `1s`, `8.64s`, `6m0s`, `1h0m0s`. */
function durationText(durationMs: number): string {
  const wholeMs = Math.ceil(durationMs);
  if (wholeMs < 1000) return wholeMs === 0 ? "0s" : `${wholeMs}ms`;
  const seconds = (wholeMs % 60_000) / 1000;
  const minutes = Math.floor(wholeMs / 60_000) % 60;
  const hours = Math.floor(wholeMs / 3_600_000);
  if (hours > 0) return `${hours}h${minutes}m${seconds}s`;
  return minutes > 0 ? `${minutes}m${seconds}s` : `${seconds}s`;
}

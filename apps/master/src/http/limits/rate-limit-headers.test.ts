import { describe, expect, it } from "vitest";
import { rateLimitHeaders } from "./rate-limit-headers.ts";

describe("rate limit reset times", () => {
  it.each([
    [0, "0s"],
    [0.2, "1ms"],
    [120, "120ms"],
    [1000, "1s"],
    [8640, "8.64s"],
    [60_000, "1m0s"],
    [360_000, "6m0s"],
    [3_600_000, "1h0m0s"],
    [3_661_500, "1h1m1.5s"],
  ])("%d ms is %s", (durationMs, text) => {
    const left = { limit: 1, remaining: 0, resetMs: durationMs };
    const headers = rateLimitHeaders({ requests: left, tokens: { ...left, resetMs: 0 } });
    expect(headers["x-ratelimit-reset-requests"]).toBe(text);
  });
});

// holds: client-retries

import { describe, expect, it } from "vitest";
import { isWorthRetrying, retryWaitMs } from "./retry.ts";

const headers = (fields: Record<string, string>) => new Headers(fields);
const advice = (status: number, fields: Record<string, string> = {}, isIdempotent = true) => ({
  status,
  headers: headers(fields),
  isIdempotent,
});

describe("retries", () => {
  it("follow 408, 429 and 5xx, not other 4xx", () => {
    for (const status of [408, 429, 500, 502, 503, 504]) {
      expect(isWorthRetrying(advice(status)), String(status)).toBe(true);
    }
    for (const status of [400, 401, 403, 404, 409, 412, 422]) {
      expect(isWorthRetrying(advice(status)), String(status)).toBe(false);
    }
  });

  it("follow the cluster's advice if it gives any", () => {
    expect(isWorthRetrying(advice(409, { "x-should-retry": "true" }))).toBe(true);
    expect(isWorthRetrying(advice(429, { "x-should-retry": "false" }))).toBe(false);
  });

  it("follow an unknown outcome only if the request is idempotent", () => {
    const unknown = { "x-should-retry": "false" };
    expect(isWorthRetrying(advice(503, unknown, true))).toBe(true);
    expect(isWorthRetrying(advice(503, unknown, false))).toBe(false);
  });

  it("wait for the requested time, to the millisecond if it is given", () => {
    const asked = headers({ "retry-after-ms": "120", "retry-after": "1" });
    expect(retryWaitMs(1, asked, 1, 0)).toBe(120);
    expect(retryWaitMs(1, headers({ "retry-after": "2" }), 1, 0)).toBe(2_000);
    const date = headers({ "retry-after": new Date(10_000).toUTCString() });
    expect(retryWaitMs(1, date, 1, 4_000)).toBe(6_000);
    expect(retryWaitMs(1, headers({ "retry-after": "61" }), 1, 0)).toBeUndefined();
  });

  it("otherwise wait for times that double, up to eight seconds", () => {
    const waits = [1, 2, 3, 4, 5, 6, 7].map((attempt) => retryWaitMs(attempt, undefined, 0, 0));
    expect(waits).toEqual([500, 1_000, 2_000, 4_000, 8_000, 8_000, 8_000]);
    expect(retryWaitMs(1, undefined, 1, 0)).toBe(375);
  });
});

// holds: client-retries

import { describe, expect, it } from "vitest";
import { isWorthRetrying, retryWaitMs } from "./retry.ts";

const headers = (fields: Record<string, string>) => new Headers(fields);
const advice = (status: number, fields: Record<string, string> = {}, isIdempotent = true) => ({
  status,
  headers: headers(fields),
  isIdempotent,
});

describe("a request is sent again", () => {
  it("after 408, 429 and 5xx, not after what it is to blame for itself", () => {
    for (const status of [408, 429, 500, 502, 503, 504]) {
      expect(isWorthRetrying(advice(status)), String(status)).toBe(true);
    }
    for (const status of [400, 401, 403, 404, 409, 412, 422]) {
      expect(isWorthRetrying(advice(status)), String(status)).toBe(false);
    }
  });

  it("as the cluster says, where it says something", () => {
    expect(isWorthRetrying(advice(409, { "x-should-retry": "true" }))).toBe(true);
    expect(isWorthRetrying(advice(429, { "x-should-retry": "false" }))).toBe(false);
  });

  it("with an unknown outcome only where it cannot be made twice", () => {
    const unknown = { "x-should-retry": "false" };
    expect(isWorthRetrying(advice(503, unknown, true))).toBe(true);
    expect(isWorthRetrying(advice(503, unknown, false))).toBe(false);
  });

  it("after the wait that was asked for, to the millisecond where it is told", () => {
    const asked = headers({ "retry-after-ms": "120", "retry-after": "1" });
    expect(retryWaitMs(1, asked, 1, 0)).toBe(120);
    expect(retryWaitMs(1, headers({ "retry-after": "2" }), 1, 0)).toBe(2_000);
    const date = headers({ "retry-after": new Date(10_000).toUTCString() });
    expect(retryWaitMs(1, date, 1, 4_000)).toBe(6_000);
    expect(retryWaitMs(1, headers({ "retry-after": "61" }), 1, 0)).toBeUndefined();
  });

  it("else after waits that double, up to eight seconds", () => {
    const waits = [1, 2, 3, 4, 5, 6, 7].map((attempt) => retryWaitMs(attempt, undefined, 0, 0));
    expect(waits).toEqual([500, 1_000, 2_000, 4_000, 8_000, 8_000, 8_000]);
    expect(retryWaitMs(1, undefined, 1, 0)).toBe(375);
  });
});

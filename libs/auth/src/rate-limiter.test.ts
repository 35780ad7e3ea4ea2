// holds: key-limits

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { LIMIT_CEILING, RateLimiter, RateReservation, shareOfLimits } from "./rate-limiter.ts";

function setUp(maxKeys = 100) {
  const clock = { now: 1_000_000 };
  return { clock, limiter: new RateLimiter({ now: () => clock.now, maxKeys }) };
}

function admitted(result: ReturnType<RateLimiter["admit"]>): RateReservation {
  if (result instanceof RateReservation) return result;
  throw new Error(`refused by ${result.limitedBy}`);
}

describe("RateLimiter", () => {
  it("admits exactly the burst of 200 concurrent calls", () => {
    const { limiter } = setUp();
    const results = Array.from({ length: 200 }, () =>
      limiter.admit("k", { requestsPerMinute: 50 }, 1),
    );
    expect(results.filter(({ ok }) => ok)).toHaveLength(50);
    expect(results.at(-1)).toMatchObject({ ok: false, limitedBy: "requests", limit: 50 });
  });

  it("admits again exactly when the returned wait has passed", () => {
    const { clock, limiter } = setUp();
    const limits = { requestsPerMinute: 60 };
    for (let i = 0; i < 60; i++) admitted(limiter.admit("k", limits, 0)).finish(0);
    const refused = limiter.admit("k", limits, 0);
    expect(refused).toMatchObject({ ok: false, retryAfterMs: 1000 });
    clock.now += 999;
    expect(limiter.admit("k", limits, 0).ok).toBe(false);
    clock.now += 1;
    expect(limiter.admit("k", limits, 0).ok).toBe(true);
  });

  it("does not charge a refused call", () => {
    const { limiter } = setUp();
    const limits = { requestsPerMinute: 2, tokensPerMinute: 100 };
    for (let i = 0; i < 50; i++) limiter.admit("k", limits, 101);
    expect(limiter.view("k", limits).requests.remaining).toBe(2);
    expect(limiter.admit("k", limits, 100).ok).toBe(true);
  });

  it("returns no wait if one call exceeds the whole limit", () => {
    const { limiter } = setUp();
    const refused = limiter.admit("k", { tokensPerMinute: 100 }, 101);
    expect(refused).toEqual({
      ok: false,
      limitedBy: "tokens",
      limit: 100,
      retryAfterMs: undefined,
    });
  });

  it("returns unused tokens, and charges those beyond the reservation", () => {
    const { limiter } = setUp();
    const limits = { tokensPerMinute: 1000 };
    admitted(limiter.admit("k", limits, 900)).finish(100);
    expect(limiter.view("k", limits).tokens.remaining).toBe(900);
    admitted(limiter.admit("k", limits, 100)).finish(900);
    expect(limiter.view("k", limits).tokens.remaining).toBe(0);
    expect(limiter.admit("k", limits, 1).ok).toBe(false);
  });

  it("releases a call's slot once, however often it is finished", () => {
    const { limiter } = setUp();
    const limits = { concurrency: 2 };
    const first = admitted(limiter.admit("k", limits, 0));
    admitted(limiter.admit("k", limits, 0));
    expect(limiter.admit("k", limits, 0)).toMatchObject({ limitedBy: "concurrency", limit: 2 });
    first.finish(0);
    first.finish(0);
    expect(limiter.admit("k", limits, 0).ok).toBe(true);
    expect(limiter.admit("k", limits, 0).ok).toBe(false);
  });

  it("keeps keys apart and applies a ceiling to those without limits", () => {
    const { limiter } = setUp();
    limiter.admit("a", { requestsPerMinute: 1 }, 0);
    expect(limiter.admit("b", { requestsPerMinute: 1 }, 0).ok).toBe(true);
    expect(limiter.admit("c", {}, LIMIT_CEILING.tokensPerMinute + 1).ok).toBe(false);
  });

  it("drops idle keys only, and refuses above its bound on keys", () => {
    const { clock, limiter } = setUp(2);
    const running = admitted(limiter.admit("a", {}, 0));
    admitted(limiter.admit("b", { requestsPerMinute: 1 }, 0)).finish(0);
    expect(limiter.admit("c", {}, 0)).toMatchObject({ ok: false, limitedBy: "keys" });
    clock.now += 60_000;
    expect(limiter.admit("c", {}, 0).ok).toBe(true);
    expect(limiter.size).toBe(2);
    running.finish(0);
  });

  it("admits a whole burst although its sum is rounded up", () => {
    const { limiter } = setUp();
    // 19 times 60,000 / 19 is more than 60,000 in floating point.
    for (let i = 0; i < 19; i++) {
      expect(limiter.admit("k", { requestsPerMinute: 19 }, 0).ok, `call ${i + 1}`).toBe(true);
    }
    expect(limiter.admit("k", { requestsPerMinute: 19 }, 0).ok).toBe(false);
  });

  it("keeps a key until its tokens are refilled, to the millisecond", () => {
    const { clock, limiter } = setUp(1);
    admitted(limiter.admit("a", { tokensPerMinute: 60 }, 60)).finish(60);
    clock.now += 59_999;
    expect(limiter.admit("b", {}, 0)).toEqual({
      ok: false,
      limitedBy: "keys",
      limit: 1,
      retryAfterMs: 1000,
    });
    clock.now += 1;
    expect(limiter.admit("b", {}, 0).ok).toBe(true);
  });

  it("returns the wait of a call that fits the limit but not the rest of it", () => {
    const { limiter } = setUp();
    const limits = { tokensPerMinute: 100 };
    admitted(limiter.admit("k", limits, 50)).finish(50);
    expect(limiter.admit("k", limits, 100)).toEqual({
      ok: false,
      limitedBy: "tokens",
      limit: 100,
      retryAfterMs: 30_000,
    });
  });

  it("shows the rest without using it, and the ceilings of a key without limits", () => {
    const { clock, limiter } = setUp();
    const limits = { requestsPerMinute: 60, tokensPerMinute: 600 };
    const call = admitted(limiter.admit("k", limits, 60));
    const left = {
      requests: { limit: 60, remaining: 59, resetMs: 1000 },
      tokens: { limit: 600, remaining: 540, resetMs: 6000 },
    };
    for (let i = 0; i < 2; i++) {
      expect(call.view()).toEqual(left);
      expect(limiter.view("k", limits)).toEqual(left);
    }
    clock.now += 60_000;
    expect(limiter.view("k", limits).tokens).toEqual({ limit: 600, remaining: 600, resetMs: 0 });
    const { requestsPerMinute: requests, tokensPerMinute: tokens } = LIMIT_CEILING;
    expect(limiter.view("never seen", {})).toEqual({
      requests: { limit: requests, remaining: requests, resetMs: 0 },
      tokens: { limit: tokens, remaining: tokens, resetMs: 0 },
    });
    expect(limiter.view("never seen", limits).requests.remaining).toBe(60);
    expect(limiter.size).toBe(1);
  });

  it("corrects a running call's tokens by the difference, an ended one's not at all", () => {
    const { limiter } = setUp();
    const limits = { tokensPerMinute: 1000 };
    const remaining = () => limiter.view("k", limits).tokens.remaining;
    const call = admitted(limiter.admit("k", limits, 500));
    call.correct(200);
    expect(remaining()).toBe(800);
    call.correct(300);
    expect(remaining()).toBe(700);
    call.finish(400);
    call.correct(900);
    expect(remaining()).toBe(600);
  });

  it("returns a cancelled call's request, tokens and slot, once", () => {
    const { clock, limiter } = setUp();
    const limits = { requestsPerMinute: 6, tokensPerMinute: 600, concurrency: 2 };
    const kept = admitted(limiter.admit("k", limits, 100));
    const before = limiter.view("k", limits);
    const call = admitted(limiter.admit("k", limits, 200));
    expect([kept.reservedTokens, call.reservedTokens]).toEqual([100, 200]);
    for (let time = 0; time < 2; time++) {
      call.cancel();
      expect(limiter.view("k", limits)).toEqual(before);
    }
    admitted(limiter.admit("k", limits, 0));
    expect(limiter.admit("k", limits, 0)).toMatchObject({ limitedBy: "concurrency" });
    clock.now += 120_000;
    expect(limiter.view("k", limits).requests.remaining).toBe(6);
  });

  it("shows what is left after all limits were emptied, before and after a call", () => {
    const { clock, limiter } = setUp();
    const limits = { requestsPerMinute: 60, tokensPerMinute: 600 };
    admitted(limiter.admit("k", limits, 0)).finish(0);
    limiter.empty();
    const left = () => {
      const { requests, tokens } = limiter.view("k", limits);
      return [requests.remaining, tokens.remaining];
    };
    expect(left()).toEqual([0, 0]);
    clock.now += 30_000;
    expect(left()).toEqual([30, 300]);
  });

  it("refuses every call under a limit of 0, without a wait", () => {
    const { limiter } = setUp();
    const refused = { ok: false, limit: 0, retryAfterMs: undefined };
    expect(limiter.admit("k", { concurrency: 0 })).toEqual({
      ...refused,
      limitedBy: "concurrency",
    });
    expect(limiter.admit("k", { requestsPerMinute: 0 })).toEqual({
      ...refused,
      limitedBy: "requests",
    });
    expect(limiter.admit("k", { tokensPerMinute: 0 }, 1)).toEqual({
      ...refused,
      limitedBy: "tokens",
    });
    const call = admitted(limiter.admit("k", { tokensPerMinute: 0 }, 0));
    expect(call.reserve(0)).toBeUndefined();
    call.finish(0);
    expect(limiter.view("k", { tokensPerMinute: 100 }).tokens.remaining).toBe(100);
  });

  it("divides the limits among masters exactly; the first have one more", () => {
    const limits = { requestsPerMinute: 8, tokensPerMinute: 9, concurrency: 1 };
    const share = (rank: number) => Object.values(shareOfLimits(limits, { rank, count: 3 }));
    expect([0, 1, 2, 3, 4].map(share)).toEqual([
      [3, 3, 1],
      [3, 3, 0],
      [2, 3, 0],
      [0, 0, 0],
      [0, 0, 0],
    ]);
    expect(shareOfLimits({}, { rank: 5, count: 3 })).toEqual({});
    expect(Object.keys(shareOfLimits({}, { rank: 5, count: 3 }))).not.toContain("budget");
    const budget = { amount: 8, period: "day" as const };
    const budgets = [0, 1, 2, 3].map(
      (rank) => shareOfLimits({ budget }, { rank, count: 3 }).budget,
    );
    expect(budgets).toEqual([3, 3, 2, 0].map((amount) => ({ amount, period: "day" })));
  });

  it("returns the violated limit and the wait", () => {
    const { limiter } = setUp();
    const limits = { concurrency: 1, requestsPerMinute: 2 };
    const call = admitted(limiter.admit("k", limits, 0));
    const concurrency = { ok: false, limitedBy: "concurrency", limit: 1, retryAfterMs: 1000 };
    expect(limiter.admit("k", limits, 0)).toEqual(concurrency);
    call.finish(0);
    admitted(limiter.admit("k", limits, 0)).finish(0);
    expect(limiter.admit("k", limits, 0)).toEqual({
      ok: false,
      limitedBy: "requests",
      limit: 2,
      retryAfterMs: 30_000,
    });
  });

  it("admits at most twice the limit of tokens in any minute, in any order", () => {
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.nat(500), fc.nat(500), fc.nat(2_000)), { maxLength: 200 }),
        (calls) => {
          const { clock, limiter } = setUp();
          const used: { atMs: number; tokens: number }[] = [];
          for (const [reserve, spendShare, stepMs] of calls) {
            const result = limiter.admit("k", { tokensPerMinute: 1000 }, reserve);
            if (result instanceof RateReservation) {
              const tokens = Math.floor((reserve * spendShare) / 500);
              result.finish(tokens);
              used.push({ atMs: clock.now, tokens });
            }
            clock.now += stepMs;
          }
          for (const { atMs } of used) {
            const window = used.filter((use) => use.atMs >= atMs && use.atMs < atMs + 60_000);
            expect(window.reduce((sum, use) => sum + use.tokens, 0)).toBeLessThanOrEqual(2000);
          }
        },
      ),
    );
  });
});

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { LIMIT_CEILING, RateLimiter, Reservation } from "./rate-limiter.ts";

function setUp(maxKeys = 100) {
  const clock = { now: 1_000_000 };
  return { clock, limiter: new RateLimiter({ now: () => clock.now, maxKeys }) };
}

function admitted(result: ReturnType<RateLimiter["admit"]>): Reservation {
  if (result instanceof Reservation) return result;
  throw new Error(`refused by ${result.limitedBy}`);
}

describe("RateLimiter", () => {
  it("lets exactly the burst through of 200 calls at once", () => {
    const { limiter } = setUp();
    const results = Array.from({ length: 200 }, () =>
      limiter.admit("k", { requestsPerMinute: 50 }, 1),
    );
    expect(results.filter(({ ok }) => ok)).toHaveLength(50);
    expect(results.at(-1)).toMatchObject({ ok: false, limitedBy: "requests", limit: 50 });
  });

  it("admits again when the wait that it told is over, and not before", () => {
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

  it("charges a refused call nothing", () => {
    const { limiter } = setUp();
    const limits = { requestsPerMinute: 2, tokensPerMinute: 100 };
    for (let i = 0; i < 50; i++) limiter.admit("k", limits, 101);
    expect(limiter.view("k", limits).requests.remaining).toBe(2);
    expect(limiter.admit("k", limits, 100).ok).toBe(true);
  });

  it("says that waiting is in vain where one call exceeds the whole limit", () => {
    const { limiter } = setUp();
    const refused = limiter.admit("k", { tokensPerMinute: 100 }, 101);
    expect(refused).toEqual({
      ok: false,
      limitedBy: "tokens",
      limit: 100,
      retryAfterMs: undefined,
    });
  });

  it("gives unused tokens back, and takes those beyond the reservation", () => {
    const { limiter } = setUp();
    const limits = { tokensPerMinute: 1000 };
    admitted(limiter.admit("k", limits, 900)).finish(100);
    expect(limiter.view("k", limits).tokens.remaining).toBe(900);
    admitted(limiter.admit("k", limits, 100)).finish(900);
    expect(limiter.view("k", limits).tokens.remaining).toBe(0);
    expect(limiter.admit("k", limits, 1).ok).toBe(false);
  });

  it("frees a call's place once, however often it is finished", () => {
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

  it("keeps keys apart and enforces a ceiling on those without limits", () => {
    const { limiter } = setUp();
    limiter.admit("a", { requestsPerMinute: 1 }, 0);
    expect(limiter.admit("b", { requestsPerMinute: 1 }, 0).ok).toBe(true);
    expect(limiter.admit("c", {}, LIMIT_CEILING.tokensPerMinute + 1).ok).toBe(false);
  });

  it("forgets idle keys only, and refuses rather than grow past its bound", () => {
    const { clock, limiter } = setUp(2);
    const running = admitted(limiter.admit("a", {}, 0));
    admitted(limiter.admit("b", { requestsPerMinute: 1 }, 0)).finish(0);
    expect(limiter.admit("c", {}, 0)).toMatchObject({ ok: false, limitedBy: "keys" });
    clock.now += 60_000;
    expect(limiter.admit("c", {}, 0).ok).toBe(true);
    expect(limiter.size).toBe(2);
    running.finish(0);
  });

  it("never lets more tokens through in a minute than twice the limit, in any order of events", () => {
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.nat(500), fc.nat(500), fc.nat(2_000)), { maxLength: 200 }),
        (calls) => {
          const { clock, limiter } = setUp();
          const used: { atMs: number; tokens: number }[] = [];
          for (const [reserve, spendShare, stepMs] of calls) {
            const result = limiter.admit("k", { tokensPerMinute: 1000 }, reserve);
            if (result instanceof Reservation) {
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

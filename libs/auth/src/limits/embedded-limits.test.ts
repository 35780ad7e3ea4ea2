// holds: key-limits

import { describe, expect, it } from "vitest";
import { RateLimiter } from "../rate-limiter.ts";
import { EmbeddedLimits } from "./embedded-limits.ts";
import type { LimitRefusal, Subject } from "./limit-store.ts";
import { OwnSpend } from "./own-spend.ts";

function setUp(maxKeys = 10) {
  const spend = new OwnSpend({ history: () => 0, wallNow: () => 0, maxSubjects: 10 });
  const limiter = new RateLimiter({ now: () => 1_000_000, maxKeys });
  const limits = new EmbeddedLimits({ limiter, spend, share: (subject) => subject.limits });
  const left = (...subjects: Subject[]) =>
    limits.views(subjects).map(({ requests, tokens }) => [requests.remaining, tokens.remaining]);
  return { spend, limiter, limits, left };
}

const subject = (name: string, limits: Subject["limits"]): Subject => ({
  kind: "key",
  name,
  limits,
});
const KEY = subject("key", {
  requestsPerMinute: 10,
  tokensPerMinute: 100,
  concurrency: 2,
  budget: { amount: 1000, period: "total" },
});
const PROJECT = subject("project", {
  requestsPerMinute: 2,
  tokensPerMinute: 50,
  budget: { amount: 500, period: "total" },
});
const NOTHING = { tokens: 0, spend: 0 };

function held<T extends { readonly ok: true }>(result: T | LimitRefusal): T {
  if (result.ok) return result;
  throw new Error(`refused by ${result.limitedBy}`);
}

describe("embedded limits", () => {
  it("calls: count for all their subjects, or for none of them", () => {
    const { limits, left } = setUp();
    for (let call = 0; call < 2; call++) held(limits.admit([KEY, PROJECT])).finish(NOTHING);
    expect(left(KEY, PROJECT)).toEqual([
      [8, 100],
      [0, 50],
    ]);
    expect(limits.admit([KEY, PROJECT])).toEqual({
      ok: false,
      subject: PROJECT,
      limitedBy: "requests",
      limit: 2,
      retryAfterMs: 30_000,
    });
    expect(left(KEY)).toEqual([[8, 100]]);
    expect(limits.runningOf(KEY)).toBe(0);
  });

  it("spend: a call that costs nothing passes where more than the budget is spent", () => {
    const { limits } = setUp();
    held(limits.admit([PROJECT])).finish({ tokens: 0, spend: 501 });
    const call = held(limits.admit([PROJECT]));
    expect(call.reserve({ tokens: 1, spend: 1 })).toMatchObject({ limitedBy: "spend" });
    expect(call.reserve({ tokens: 1, spend: 0 })).toBeUndefined();
  });

  it("tokens and spend: reserved of all subjects, or of none of them", () => {
    const { limits, left, spend } = setUp();
    const hold = held(limits.admit([KEY, PROJECT]));
    expect(hold.reserve({ tokens: 60, spend: 10 })).toMatchObject({
      subject: PROJECT,
      limitedBy: "tokens",
      limit: 50,
    });
    expect(left(KEY)).toEqual([[9, 100]]);
    expect(hold.reserve({ tokens: 10, spend: 501 })).toEqual({
      ok: false,
      subject: PROJECT,
      limitedBy: "spend",
      limit: 500,
    });
    expect([spend.of(KEY), left(KEY)]).toEqual([0, [[9, 100]]]);
    expect(hold.reserve({ tokens: 50, spend: 500 })).toBeUndefined();
    expect([spend.of(KEY), spend.of(PROJECT), limits.budgetLeft(KEY)]).toEqual([500, 500, 500]);
    expect(hold.views().map(({ tokens }) => tokens.remaining)).toEqual([50, 0]);
    hold.correct({ tokens: 20, spend: 100 });
    expect([left(KEY, PROJECT), spend.of(PROJECT)]).toEqual([
      [
        [9, 80],
        [1, 30],
      ],
      100,
    ]);
    hold.finish({ tokens: 30, spend: 40 });
    expect([left(KEY), spend.of(KEY)]).toEqual([[[9, 70]], 40]);
  });

  it("a call that has ended changes nothing more", () => {
    for (const end of ["finish", "cancel"] as const) {
      const { limits, left, spend } = setUp();
      const hold = held(limits.admit([KEY]));
      hold.reserve({ tokens: 20, spend: 20 });
      if (end === "finish") hold.finish({ tokens: 5, spend: 5 });
      else hold.cancel();
      const after = end === "finish" ? [[[9, 95]], 5] : [[[10, 100]], 0];
      expect([left(KEY), spend.of(KEY)]).toEqual(after);
      hold.correct({ tokens: 50, spend: 50 });
      hold.finish({ tokens: 50, spend: 50 });
      hold.cancel();
      expect([left(KEY), spend.of(KEY), limits.runningOf(KEY)]).toEqual([...after, 0]);
    }
  });

  it("adopted calls run and cost, but take no request", () => {
    const { limits, left, spend } = setUp();
    const hold = held(limits.adopt([KEY, PROJECT]));
    expect([limits.runningOf(KEY), left(KEY)]).toEqual([1, [[10, 100]]]);
    // They count as running, whatever the limit.
    for (let call = 0; call < 3; call++) held(limits.adopt([KEY]));
    expect(limits.admit([KEY])).toMatchObject({ limitedBy: "concurrency", limit: 2 });
    expect(hold.reserve({ tokens: 10, spend: 10 })).toBeUndefined();
    hold.finish({ tokens: 4, spend: 6 });
    expect([left(KEY, PROJECT), spend.of(KEY)]).toEqual([
      [
        [10, 96],
        [2, 46],
      ],
      6,
    ]);
    expect([limits.runningOf(KEY), limits.runningOf(PROJECT)]).toEqual([3, 0]);
  });

  it("adopted calls are refused at the bound on subjects, and count for none", () => {
    const { limits } = setUp(1);
    expect(limits.adopt([KEY, PROJECT])).toEqual({
      ok: false,
      subject: PROJECT,
      limitedBy: "keys",
      limit: 0,
      retryAfterMs: 1000,
    });
    expect(limits.runningOf(KEY)).toBe(0);
    held(limits.adopt([KEY])).finish(NOTHING);
  });

  it("after they were emptied, all rates begin empty; calls without limits pass", () => {
    const { limits, left } = setUp();
    const free = subject("free", {});
    limits.empty();
    expect(limits.admit([KEY])).toMatchObject({ limitedBy: "requests" });
    held(limits.admit([free]));
    held(limits.adopt([KEY])).finish(NOTHING);
    expect(left(KEY)).toEqual([[0, 0]]);
    expect(limits.budgetLeft(free)).toBeUndefined();
  });

  it("what is left of a budget is without what running calls may spend", () => {
    const { limits } = setUp();
    expect(limits.budgetLeft(KEY)).toBe(1000);
    const hold = held(limits.admit([KEY]));
    hold.reserve({ tokens: 0, spend: 300 });
    expect(limits.budgetLeft(KEY)).toBe(700);
    hold.cancel();
    expect(limits.budgetLeft(KEY)).toBe(1000);
  });
});

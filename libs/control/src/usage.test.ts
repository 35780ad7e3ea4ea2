// holds: usage-ledger

import { expect, it } from "vitest";
import { emptyState } from "./apply.ts";
import { MAX_USAGE_SUMS, putUsage } from "./usage.ts";
import type { UsageSum } from "./usage-sum.ts";

const DAY_MS = 86_400_000;
const TODAY = 20_000;

const sum: UsageSum = {
  day: TODAY,
  key: "k",
  owner: "k",
  project: "p",
  model: "m",
  calls: 2,
  failed: 0,
  promptTokens: 5,
  cachedTokens: 0,
  completionTokens: 7,
  cost: 9,
};

function put(state: ReturnType<typeof emptyState>, sums: readonly UsageSum[], master = 1) {
  return putUsage(state, { type: "usage.put", atMs: TODAY * DAY_MS, master, sums });
}

it("usage: a repeated or late command changes nothing, a later sum replaces its own", () => {
  const state = emptyState();
  put(state, [sum]);
  put(state, [sum]);
  put(state, [{ ...sum, calls: 3, promptTokens: 8 }]);
  put(state, [sum]);
  put(state, [sum], 2);
  const kept = [...state.usage.values()].map(({ master, calls, promptTokens }) => [
    master,
    calls,
    promptTokens,
  ]);
  expect(kept).toEqual([
    [1, 3, 8],
    [2, 2, 5],
  ]);
});

it("usage: 50,000 sums of 400 days are kept; the oldest day goes first", () => {
  const state = emptyState();
  put(state, [{ ...sum, day: TODAY - 400 }]);
  expect(state.usage.size).toBe(0);
  put(state, [{ ...sum, day: TODAY - 399 }]);
  for (let from = 0; from < 50_000; from += MAX_USAGE_SUMS) {
    const sums = Array.from({ length: MAX_USAGE_SUMS }, (_, i) => ({
      ...sum,
      key: `k${from + i}`,
    }));
    put(state, sums);
  }
  expect(state.usage.size).toBe(50_000);
  expect([...state.usage.values()].every(({ day }) => day === TODAY)).toBe(true);
  put(state, [{ ...sum, key: "more" }]);
  expect(state.usage.size).toBe(50_000);
  expect(put(state, Array(MAX_USAGE_SUMS + 1).fill(sum))).toMatchObject({ ok: false });
});

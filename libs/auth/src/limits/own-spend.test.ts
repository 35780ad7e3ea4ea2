// holds: key-limits

import { expect, it } from "vitest";
import type { Subject } from "./limit-store.ts";
import { OwnSpend } from "./own-spend.ts";

function setUp(maxSubjects = 10) {
  const clock = { now: Date.parse("2026-11-28T12:00:00Z") };
  const history = new Map<string, number>();
  const asked: string[] = [];
  const spend = new OwnSpend({
    history: ({ name }, period) => {
      asked.push(`${name} ${period}`);
      return history.get(`${name} ${period}`) ?? 0;
    },
    wallNow: () => clock.now,
    maxSubjects,
  });
  return { clock, history, asked, spend };
}

const of = (name: string, period: "day" | "month" | "total" = "day"): Subject => ({
  kind: "key",
  name,
  limits: { budget: { amount: 100, period } },
});
const unlimited = (name: string): Subject => ({ kind: "key", name, limits: {} });

it("own spend: what ended calls cost and running ones reserve", () => {
  const { spend, history, asked } = setUp();
  history.set("a 2026-11-28", 40);
  expect(spend.of(of("a"))).toBe(40);
  spend.begin(of("a"));
  spend.reserve(of("a"), 10);
  expect(spend.of(of("a"))).toBe(50);
  spend.end(of("a"), 10, 3);
  expect(spend.of(of("a"))).toBe(43);
  expect(spend.of(of("b"))).toBe(0);
  expect(asked).toEqual(["a 2026-11-28", "b 2026-11-28"]);
});

it("own spend: a new period begins with its own history and what still runs", () => {
  const { spend, history, clock } = setUp();
  spend.begin(of("a"));
  spend.reserve(of("a"), 10);
  spend.begin(of("a"));
  spend.end(of("a"), 0, 30);
  history.set("a 2026-11-29", 5);
  clock.now += 12 * 3_600_000;
  expect(spend.of(of("a"))).toBe(15);
  spend.end(of("a"), 10, 7);
  expect(spend.of(of("a"))).toBe(12);
  expect(spend.periodOf("day")).toBe("2026-11-29");
});

it("own spend: calls without a budget count for one that is set again", () => {
  const { spend } = setUp();
  spend.begin(unlimited("a"));
  spend.reserve(unlimited("a"), 50);
  spend.end(unlimited("a"), 50, 30);
  expect(spend.of(of("a", "total"))).toBe(0);
  spend.begin(unlimited("a"));
  spend.end(unlimited("a"), 50, 30);
  expect(spend.of(of("a", "total"))).toBe(30);
  expect(spend.of(unlimited("a"))).toBe(30);
});

it("own spend: at the bound it forgets subjects without a running call", () => {
  const { spend, asked } = setUp(2);
  spend.begin(of("runs"));
  spend.begin(of("ended"));
  spend.end(of("ended"), 0, 0);
  expect(asked).toHaveLength(2);
  spend.of(of("new"));
  expect(asked).toHaveLength(3);
  spend.of(of("runs"));
  expect(asked).toHaveLength(3);
  spend.of(of("ended"));
  expect(asked).toHaveLength(4);
});

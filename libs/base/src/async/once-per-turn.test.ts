import { expect, test } from "vitest";
import { OncePerTurn } from "./once-per-turn.ts";

test.each([
  ["the next turn", undefined, ["turn", "work"]],
  ["the end of the turn", queueMicrotask, ["work", "turn"]],
])("OncePerTurn: the requests of one turn are one run, at %s", async (_when, defer, order) => {
  const log: string[] = [];
  const once = new OncePerTurn(() => log.push("work"), defer);
  for (let round = 1; round <= 2; round++) {
    for (let i = 0; i < 3; i++) once.request();
    expect(log).toHaveLength((round - 1) * 2);
    process.nextTick(() => queueMicrotask(() => queueMicrotask(() => log.push("turn"))));
    await new Promise((resolve) => setTimeout(resolve, 0));
    await new Promise((resolve) => setImmediate(resolve));
    expect(log.slice(-2)).toEqual(order);
    expect(log).toHaveLength(round * 2);
  }
});

test("OncePerTurn: a request within the work, or after one that threw, runs again", () => {
  const runs: (() => void)[] = [];
  let left = 2;
  const once = new OncePerTurn(
    () => {
      if (--left > 0) once.request();
      else throw new Error("thrown");
    },
    (run) => runs.push(run),
  );
  once.request();
  runs[0]?.();
  expect(runs).toHaveLength(2);
  expect(() => runs[1]?.()).toThrow("thrown");
  once.request();
  expect(runs).toHaveLength(3);
});

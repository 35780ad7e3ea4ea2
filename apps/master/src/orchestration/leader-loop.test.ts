import { systemClock } from "@heddle/base/clock";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { VolatileControl } from "../../test/test-master.ts";
import { LeaderLoop } from "./leader-loop.ts";

const log = { info() {}, warn() {}, error() {} };

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

/** A loop whose first step takes this long by the fake clock; and when its steps began. */
function loopOf(firstStepMs: number) {
  const startMs = performance.now();
  const begun: number[] = [];
  const step = async () => {
    begun.push(Math.round(performance.now() - startMs));
    if (begun.length === 1) vi.advanceTimersByTime(firstStepMs);
    return undefined;
  };
  const task = { name: "a loop", pauseMs: 10, concerns: () => true, step };
  const loop = new LeaderLoop(task, new VolatileControl(), systemClock, log);
  return { loop, begun };
}

test("leader loop: a long step is followed by a pause of its length", async () => {
  const { loop, begun } = loopOf(300);
  await vi.advanceTimersByTimeAsync(10);
  loop.poke();
  await vi.advanceTimersByTimeAsync(2_000);
  expect(begun).toEqual([10, 610]);
  loop.close();
});

test("leader loop: a pause of the process delays the next step by 5 s at most", async () => {
  const { loop, begun } = loopOf(75_000);
  await vi.advanceTimersByTimeAsync(10);
  loop.poke();
  await vi.advanceTimersByTimeAsync(5_000);
  expect(begun).toEqual([10, 80_010]);
  loop.close();
});

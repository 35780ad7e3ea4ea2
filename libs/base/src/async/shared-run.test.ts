// holds: bound-views-steps

import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { SharedRun } from "./shared-run.ts";
import { StepQueue } from "./step-queue.ts";

const LONG = 2_000;

let runs: number;

/** A run of this many steps whose result is its number. */
function sharedRun(steps: number, fails = false): SharedRun<number> {
  return new SharedRun(new StepQueue("runs"), (inSteps) =>
    inSteps(function* () {
      const run = ++runs;
      for (let step = 0; step < steps; step++) yield;
      if (fails) throw new Error(`run ${run}`);
      return run;
    }),
  );
}

beforeEach(() => {
  runs = 0;
  vi.useFakeTimers({ toFake: ["setTimeout"] });
});
afterEach(() => vi.useRealTimers());

it("shared run: callers during a run get its result", async () => {
  const shared = sharedRun(3);
  expect(await Promise.all([shared.get(), shared.get(), shared.get()])).toEqual([1, 1, 1]);
});

it("shared run: the result of a short run is not kept", async () => {
  const shared = sharedRun(100);
  expect([await shared.get(), await shared.get()]).toEqual([1, 2]);
});

it("shared run: the result of a long run is kept for a second", async () => {
  const shared = sharedRun(LONG);
  await shared.get();
  vi.advanceTimersByTime(999);
  expect(await shared.get()).toBe(1);
  vi.advanceTimersByTime(1);
  expect(await shared.get()).toBe(2);
});

it("shared run: a renewed one begins after the call, and serves later callers", async () => {
  const shared = sharedRun(LONG);
  await shared.get();
  expect(await shared.renew()).toBe(2);
  vi.advanceTimersByTime(999);
  expect(await shared.get()).toBe(2);
});

it("shared run: the end of an older run does not drop the result of a newer one", async () => {
  const shared = sharedRun(LONG);
  await shared.get();
  vi.advanceTimersByTime(500);
  await shared.renew();
  vi.advanceTimersByTime(600);
  expect(await shared.get()).toBe(2);
});

it("shared run: an error reaches all callers of the run", async () => {
  const shared = sharedRun(0, true);
  const both = await Promise.allSettled([shared.get(), shared.get()]);
  expect(both.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
  await expect(shared.get()).rejects.toThrow("run 2");
});

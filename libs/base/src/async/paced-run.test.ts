import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { PacedRun } from "./paced-run.ts";

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

/** Work that takes this long by the fake clock. */
function paced(tookMs: number) {
  const startMs = performance.now();
  const runs: number[] = [];
  const run = new PacedRun(() => {
    runs.push(Math.round(performance.now() - startMs));
    vi.advanceTimersByTime(tookMs);
  });
  return { run, runs };
}

test("PacedRun: requests of one turn are one run in the next", async () => {
  const { run, runs } = paced(0);
  for (let i = 0; i < 3; i++) run.request();
  expect(runs).toEqual([]);
  await vi.advanceTimersByTimeAsync(0);
  run.request();
  await vi.advanceTimersByTimeAsync(0);
  expect(runs).toEqual([0, 0]);
});

test("PacedRun: requests that may wait are merged, and an urgent one is not delayed", async () => {
  const { run, runs } = paced(0);
  for (let i = 0; i < 10; i++) {
    run.request(250);
    await vi.advanceTimersByTimeAsync(20);
  }
  expect(runs).toEqual([]);
  await vi.advanceTimersByTimeAsync(100);
  expect(runs).toEqual([250]);
  run.request(250);
  run.request();
  await vi.advanceTimersByTimeAsync(500);
  expect(runs).toEqual([250, 300]);
});

test("PacedRun: after a long run it rests nine times as long", async () => {
  const { run, runs } = paced(10);
  run.request();
  await vi.advanceTimersByTimeAsync(0);
  run.request();
  await vi.advanceTimersByTimeAsync(89);
  expect(runs).toEqual([0]);
  await vi.advanceTimersByTimeAsync(1);
  expect(runs).toEqual([0, 100]);
});

test("PacedRun: after a pause of the process within a run it rests for 5 s", async () => {
  const { run, runs } = paced(20_000);
  run.request();
  await vi.advanceTimersByTimeAsync(0);
  run.request();
  await vi.advanceTimersByTimeAsync(4_999);
  expect(runs).toEqual([0]);
  await vi.advanceTimersByTimeAsync(1);
  expect(runs).toEqual([0, 25_000]);
});

test("PacedRun: a request within the work runs it again; none does after the close", async () => {
  const runs: number[] = [];
  const run = new PacedRun(() => {
    runs.push(runs.length);
    if (runs.length < 3) run.request();
  });
  run.request();
  await vi.advanceTimersByTimeAsync(10);
  expect(runs).toEqual([0, 1, 2]);
  run.request(5);
  run.close();
  run.request();
  await vi.advanceTimersByTimeAsync(10);
  expect(runs).toHaveLength(3);
});

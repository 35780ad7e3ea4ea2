import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { retry } from "./retry.ts";

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

const backoff = { baseMs: 100, maxMs: 400 };

/** Fails `times` times, and then succeeds; `calls` has the time of each. */
function failing(times: number) {
  const startMs = performance.now();
  const calls: number[] = [];
  const work = async () => {
    calls.push(performance.now() - startMs);
    if (calls.length <= times) throw new Error(`failure ${calls.length}`);
    return "done";
  };
  return { calls, work };
}

test("retry: tries until the work succeeds, with growing pauses between", async () => {
  const { calls, work } = failing(5);
  const seen: number[] = [];
  const result = retry(work, { backoff, onRetry: (_error, tries) => seen.push(tries) });
  await vi.advanceTimersByTimeAsync(5_000);
  expect(await result).toBe("done");
  expect(seen).toEqual([1, 2, 3, 4, 5]);
  const pauses = calls.slice(1).map((at, i) => at - (calls[i] ?? 0));
  for (const [i, stepMs] of [100, 200, 400, 400, 400].entries()) {
    expect(pauses[i]).toBeGreaterThanOrEqual(stepMs / 2);
    expect(pauses[i]).toBeLessThanOrEqual(stepMs + 1);
  }
});

test("retry: a pause by the error replaces that of the back-off", async () => {
  const { calls, work } = failing(2);
  const asked = [50, 2_000];
  const result = retry(work, { backoff, pauseMs: () => asked[calls.length - 1] ?? 0 });
  await vi.advanceTimersByTimeAsync(3_000);
  expect(await result).toBe("done");
  expect(calls).toEqual([0, 50, 2_050]);
});

test("retry: a permanent error, or that of the last attempt, is final", async () => {
  const permanent = failing(9);
  const isPassing = (error: unknown) => (error as Error).message !== "failure 2";
  const ended = Promise.allSettled([
    retry(permanent.work, { backoff, isPassing }),
    retry(failing(9).work, { backoff, maxTries: 3 }),
  ]);
  await vi.advanceTimersByTimeAsync(5_000);
  expect((await ended).map((each) => String((each as PromiseRejectedResult).reason))).toEqual([
    "Error: failure 2",
    "Error: failure 3",
  ]);
});

test("retry: the last attempt is at the deadline, and its error is final", async () => {
  const { calls, work } = failing(99);
  const lateError = (error: unknown) => new Error("too late", { cause: error });
  const late = retry(work, { backoff, deadlineMs: 1_000, lateError });
  const caught = late.catch((error: unknown) => error as Error);
  await vi.advanceTimersByTimeAsync(5_000);
  expect(await caught).toMatchObject({ message: "too late", cause: expect.any(Error) });
  expect(Math.round(calls.at(-1) ?? 0)).toBe(1_000);
});

test("retry: an abort ends a pause at once, and no further attempt follows", async () => {
  const reason = new Error("closing");
  for (const abortAtMs of [0, 30]) {
    const controller = new AbortController();
    const { calls, work } = failing(99);
    const ended = retry(work, { backoff, signal: controller.signal }).catch((error) => error);
    await vi.advanceTimersByTimeAsync(abortAtMs);
    controller.abort(reason);
    expect(await ended).toBe(reason);
    expect(calls).toHaveLength(1);
    expect(vi.getTimerCount()).toBe(0);
  }
  const aborted = retry(failing(0).work, { backoff, signal: AbortSignal.abort(reason) });
  await expect(aborted).rejects.toBe(reason);
});

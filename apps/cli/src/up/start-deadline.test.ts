import { expect, it } from "vitest";
import { untilStarted } from "./start-deadline.ts";

/** Each read of the count ends one timeout, so no clock is involved. */
function counts(...values: number[]) {
  let last = 0;
  return () => {
    last = values.shift() ?? last;
    return last;
  };
}

const never = new Promise<void>(() => undefined);
const common = { total: 5, timeoutMs: 1, signal: new AbortController().signal };

it("start: awaited as long as further processes become ready", async () => {
  const readyCount = counts(0, 1, 2, 3, 3);
  const wait = untilStarted({ ...common, started: never, readyCount });
  await expect(wait).rejects.toMatchObject({
    code: "deadline_exceeded",
    message: expect.stringMatching(/3 of 5 are/),
  });
});

it("start: the wait ends when it completes, fails or is stopped", async () => {
  let count = 0;
  const rising = { ...common, readyCount: () => ++count };
  await untilStarted({ ...rising, started: Promise.resolve() });
  const failed = untilStarted({ ...rising, started: Promise.reject(new Error("gave up")) });
  await expect(failed).rejects.toThrow("gave up");
  const signal = AbortSignal.abort(new Error("stopped"));
  await expect(untilStarted({ ...rising, started: never, signal })).rejects.toThrow("stopped");
});

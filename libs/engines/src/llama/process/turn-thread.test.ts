import { AppError } from "@heddle/base/errors";
import { afterEach, expect, it } from "vitest";
import { TurnThread } from "./turn-thread.ts";

const OWNER = { fairKey: "a", priority: 0 };
const CPU_MS = 150;
/** Answers after it has slept, or computed, for that time. */
const PROGRAM = `
  import { parentPort } from "node:worker_threads";
  parentPort.on("message", ({ sleepMs = 0, computeMs = 0 }) => {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, sleepMs);
    const end = process.threadCpuUsage().user + computeMs * 1_000;
    while (process.threadCpuUsage().user < end);
    parentPort.postMessage({ value: "done" });
  });
`;

const url = new URL(`data:text/javascript,${encodeURIComponent(PROGRAM)}`);
const fatal: unknown[] = [];
const thread = new TurnThread<{ sleepMs?: number; computeMs?: number }, string>(
  {
    url,
    worker: {},
    limit: { cpuMs: CPU_MS, failure: () => new AppError("invalid_value", "too costly") },
  },
  (error) => fatal.push(error),
);

afterEach(async () => {
  await thread.close();
  expect(fatal).toEqual([]);
});

it("turn thread: an item that waits for long is not ended, one that computes is", async () => {
  const waits = thread.run({ sleepMs: 10 * CPU_MS }, OWNER);
  const computes = thread.run({ computeMs: 1_000 * CPU_MS }, OWNER);
  const after = thread.run({}, OWNER);
  expect(await waits.result).toBe("done");
  await expect(computes.result).rejects.toMatchObject({
    code: "invalid_value",
    message: "too costly",
  });
  expect(await after.result).toBe("done");
});

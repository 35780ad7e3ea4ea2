import { expect, test } from "vitest";
import type { TaskRecord } from "./records.ts";
import { crashesTakenOver, crashLoop, earlyCrashes } from "./recovery.ts";

const MINUTE_MS = 60_000;

/** A task that a signal ended, after this many early crashes of its rank. */
const crashed = (before?: number): TaskRecord => ({
  jobId: "j",
  attempt: 1,
  rank: 2,
  nodeId: "n",
  devices: [],
  gpuMilli: 0,
  phase: "exited",
  runningAtMs: 5_000,
  earlyCrashes: before,
  exit: { reason: "NodeLost", signal: "SIGSEGV", message: "it crashed", endedAtMs: 1 },
});

test("early crash: within a minute of the start; a longer run restarts the count", () => {
  expect(earlyCrashes(crashed(), 5_000 + MINUTE_MS - 1)).toBe(1);
  expect(earlyCrashes(crashed(1), 5_000 + MINUTE_MS - 1)).toBe(2);
  expect(earlyCrashes(crashed(2), 5_000 + MINUTE_MS)).toBeUndefined();
  const lost = { ...crashed(2), exit: { reason: "NodeLost", endedAtMs: 1 } } as const;
  expect(earlyCrashes(lost, 5_001)).toBeUndefined();
});

test("early crash: the third in a row fails the job and restarts the count", () => {
  expect(crashLoop([crashed(2)])).toBeUndefined();
  expect(crashLoop([crashed(3)])).toMatchObject({ reason: "ExitCode", rank: 2, signal: "SIGSEGV" });
  const inherited = [1, 2, 3].map((count) => crashesTakenOver(crashed(count))?.earlyCrashes);
  expect(inherited).toEqual([1, 2, undefined]);
});

// holds: task-many-on-one-worker

import { expect, test } from "vitest";
import { UnmarkedProcesses } from "./unmarked-processes.ts";

const MS = 10_000;

test("unmarked processes: one is read again until it is known for long", () => {
  let nowMs = 0;
  const unmarked = new UnmarkedProcesses({ monotonicMs: () => nowMs });
  const process = { pid: 7, startTime: 1 };
  expect(unmarked.settledUser(process)).toBeUndefined();
  unmarked.note(process, 1_000);
  nowMs = MS - 1;
  unmarked.note(process, 1_000);
  expect(unmarked.settledUser(process)).toBeUndefined();
  nowMs = MS;
  expect(unmarked.settledUser(process)).toBe(1_000);
  // The id is another process's by now.
  expect(unmarked.settledUser({ pid: 7, startTime: 2 })).toBeUndefined();
});

test("unmarked processes: another user, a mark or an end restarts the time", () => {
  let nowMs = 0;
  const unmarked = new UnmarkedProcesses({ monotonicMs: () => nowMs });
  const processes = [1, 2, 3, 4].map((pid) => ({ pid, startTime: 1 }));
  const [first, ...rest] = processes;
  for (const each of processes) unmarked.note(each, 0);
  nowMs = MS - 1;
  const [changed, marked, ended] = rest;
  unmarked.note(changed!, 1_000);
  unmarked.note(marked!, undefined);
  unmarked.keepOnly(new Map([1, 2, 3].map((pid) => [pid, pid])));
  unmarked.note(marked!, 0);
  unmarked.note(ended!, 0);
  nowMs = MS;
  expect(unmarked.settledUser(first!)).toBe(0);
  for (const each of rest) expect(unmarked.settledUser(each)).toBeUndefined();
  nowMs = 2 * MS;
  expect(rest.map((each) => unmarked.settledUser(each))).toEqual([1_000, 0, 0]);
});

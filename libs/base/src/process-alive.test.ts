import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { expect, test } from "vitest";
import { isProcessAlive, isSameProcess, processStart } from "./process-alive.ts";

test("process: alive until it has ended, under any user; a group id is no process", () => {
  expect(isProcessAlive(process.pid)).toBe(true);
  expect(isProcessAlive(1)).toBe(true);
  const { pid } = spawnSync(process.execPath, ["--version"]);
  expect(isProcessAlive(pid)).toBe(false);
  for (const none of [0, -1, -process.pid, Number.NaN, 1.5]) {
    expect(isProcessAlive(none)).toBe(false);
  }
});

test("process: an id with another start time is another process", () => {
  const started = processStart(process.pid);
  expect(isSameProcess(process.pid, started)).toBe(true);
  const other = existsSync("/proc/self/stat") ? "1" : "of a system that has it";
  expect(isSameProcess(process.pid, other)).toBe(false);
});

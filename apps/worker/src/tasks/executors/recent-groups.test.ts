// holds: task-many-on-one-worker

import { spawn } from "node:child_process";
import { once } from "node:events";
import { expect, test } from "vitest";
import { ProcessScan } from "./process-scan.ts";
import { RecentGroups } from "./recent-groups.ts";
import { watchedGroup } from "./watched-group.ts";

const MAX_RECENT_MS = 5_000;

/** A machine whose clock and count of started processes the test sets; a scan takes `scanMs`. */
function machine(started: number | undefined, scanMs = 1) {
  const state = { nowMs: 0, started, scans: 0 };
  const groups = new RecentGroups({
    nowMs: () => state.nowMs,
    started: () => state.started,
    scan: async () => {
      state.scans += 1;
      state.nowMs += scanMs;
      return new ProcessScan();
    },
  });
  const scansAfter = async (ms: number) => {
    state.nowMs += ms;
    await groups.get();
    return state.scans;
  };
  return { state, groups, scansAfter };
}

test("recent groups: a scan serves all callers until a process starts", async () => {
  const { state, groups, scansAfter } = machine(100);
  const [a, b] = await Promise.all([groups.get(), groups.get()]);
  expect(a).toBe(b);
  expect(await scansAfter(MAX_RECENT_MS - 1)).toBe(1);
  expect(await scansAfter(1)).toBe(2);
  state.started = 101;
  expect(await scansAfter(399)).toBe(2);
  expect(await scansAfter(1)).toBe(3);
});

test("recent groups: a long scan serves longer, up to a bound", async () => {
  const slow = machine(100, 100);
  await slow.groups.get();
  slow.state.started = 101;
  expect(await slow.scansAfter(1_999)).toBe(1);
  expect(await slow.scansAfter(1)).toBe(2);
  const slower = machine(100, 60_000);
  await slower.groups.get();
  slower.state.started = 101;
  expect(await slower.scansAfter(MAX_RECENT_MS - 1)).toBe(1);
  expect(await slower.scansAfter(1)).toBe(2);
});

test("recent groups: where the machine counts no processes, each scan is soon over", async () => {
  const { groups, scansAfter } = machine(undefined);
  await groups.get();
  expect(await scansAfter(399)).toBe(1);
  expect(await scansAfter(1)).toBe(2);
});

test("watched group: its memory is the present one, whenever it was scanned", async (context) => {
  const grows = `const kept = []; process.stdin.on("data", () => {
    kept.push(Buffer.alloc(64e6, 1)); process.stdout.write("grown"); }); process.stdout.write("up");`;
  const child = spawn(process.execPath, ["-e", grows], { detached: true });
  context.onTestFinished(() => void child.kill("SIGKILL"));
  await once(child.stdout, "data");
  const group = { pid: child.pid! };
  // The scan of a watched task is due after 400 ms at the earliest.
  const [before] = await Promise.all([watchedGroup(group), watchedGroup(group)]);
  expect(before).toMatchObject([{ pid: child.pid }]);
  child.stdin.write("x");
  await once(child.stdout, "data");
  const [after] = await watchedGroup(group);
  expect(after!.residentBytes - before[0]!.residentBytes).toBeGreaterThan(60e6);
});

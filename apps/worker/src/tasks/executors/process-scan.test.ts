// holds: task-many-on-one-worker

import { type ChildProcess, spawn } from "node:child_process";
import { readdirSync } from "node:fs";
import { STEP_ITEMS } from "@heddle/base/async/steps";
import { until } from "@heddle/base/testing/until";
import { expect, type TestContext, test } from "vitest";
import { freshScan, ProcessScan } from "./process-scan.ts";
import { MARK_VARIABLE, readProcess } from "./process-tree.ts";

const children = 40;
const mark = `node-${process.pid}/job_A/1/0`;
const crowdLine = `for i in $(seq ${children}); do sleep 600 & done; env -i sleep 600 & wait`;

/** A task of many processes, one of which does not carry the mark. */
async function startCrowd({
  onTestFinished,
}: TestContext): Promise<ChildProcess & { pid: number }> {
  const crowd = spawn("/bin/sh", ["-c", crowdLine], {
    detached: true,
    env: { ...process.env, [MARK_VARIABLE]: mark },
  }) as ChildProcess & { pid: number };
  onTestFinished(() => void process.kill(-crowd.pid, "SIGKILL"));
  // The unmarked one carries the mark until `env` has removed it.
  await until("all of them run", () => {
    const scan = ProcessScan.now();
    const marked = scan.marked().filter((each) => each.mark === mark);
    return (
      scan.processesOf(undefined, mark).length === children + 2 && marked.length === children + 1
    );
  });
  return crowd;
}

test("process scan: no step reads more than its share of the processes", async (context) => {
  await startCrowd(context);
  const steps = ProcessScan.inSteps();
  let count = 1;
  while (!steps.next().done) count += 1;
  const processes = readdirSync("/proc").filter((name) => /^\d+$/.test(name)).length;
  expect(processes).toBeGreaterThan(children);
  // Other programs of the machine may have ended or begun since.
  const slack = 2;
  expect(count).toBeGreaterThan(Math.floor(processes / STEP_ITEMS) - slack);
});

test("process scan: finds a task by its mark, its group and its descendants", async (context) => {
  const crowd = await startCrowd(context);
  const scan = await freshScan();
  const leader = readProcess(crowd.pid);
  expect(scan.processesOf(leader, mark)).toHaveLength(children + 2);
  const [task] = scan.markedTasks((each) => each === mark);
  expect(task?.leader?.pid).toBe(crowd.pid);
  expect(task?.others).toHaveLength(children + 1);
  // A reused id belongs to another group, and a group without the mark to no task.
  expect(scan.processesOf({ pid: crowd.pid, startTime: 1 }, "another")).toEqual([]);
  expect(scan.processesOf(leader, "another")).toEqual([]);
  expect(scan.processesOf(leader, "another", true)).toHaveLength(children + 2);
  expect(scan.marked().filter((each) => each.mark === mark)).toHaveLength(children + 1);
});

test("process scan: shows processes that began before the call", async (context) => {
  // An earlier scan must not serve a later call, unless it has not begun.
  const earlier = await freshScan();
  const crowd = await startCrowd(context);
  const [a, b] = await Promise.all([freshScan(), freshScan()]);
  expect(a).toBe(b);
  expect(a).not.toBe(earlier);
  expect(a.groupOf(crowd)).toHaveLength(children + 2);
});

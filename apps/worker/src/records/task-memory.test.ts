// holds: task-bounds

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isProcessAlive } from "@heddle/base/process-alive";
import { expect, onTestFinished, test } from "vitest";
import type { TaskLaunch } from "../tasks/executors/executor.ts";
import { ProcessScan } from "../tasks/executors/process-scan.ts";
import { readProcess } from "../tasks/executors/process-tree.ts";
import { Isolation } from "../tasks/isolation/isolation.ts";
import { ProcessExecutor } from "../tasks/processes/process-executor.ts";
import { TaskDirectory } from "./task-directory.ts";
import { taskMemory } from "./task-memory.ts";

const id = { jobId: "job_A", attempt: 1, rank: 0, incarnation: 0 };
const plan = { id, spec: { executor: "process", memoryBytes: 0 }, devices: [], gpuMilli: 0 };

test("record: is used only if it is whole and of the directory's task", () => {
  const root = "/data/jobs";
  const directory = TaskDirectory.of(root, id);
  const memory = { plan, phase: "running", rendezvous: "" };
  expect(taskMemory(memory, directory, root)).toBe(memory);
  const others = [
    undefined,
    null,
    7,
    "x",
    [],
    {},
    { plan: null },
    { plan: {} },
    { ...memory, phase: "flying" },
    { ...memory, plan: { ...plan, spec: null } },
    { ...memory, plan: { ...plan, devices: {} } },
    ...[{ rank: 1 }, { attempt: 2 }, { jobId: "job_B" }, { jobId: "../x" }, { incarnation: 1 }].map(
      (other) => ({ ...memory, plan: { ...plan, id: { ...id, ...other } } }),
    ),
    { ...memory, plan: { ...plan, id: { ...id, rank: "0" } } },
  ];
  for (const other of others) expect(taskMemory(other, directory, root)).toBeUndefined();
});

test("record: a forged one makes the worker kill no process of others", async () => {
  const folder = mkdtempSync(join(tmpdir(), "heddle-forged-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const sleeper = (environment: NodeJS.ProcessEnv) => {
    const child = spawn("sleep", ["600"], { detached: true, stdio: "ignore", env: environment });
    onTestFinished(() => void child.kill("SIGKILL"));
    return child;
  };
  const { PATH } = process.env;
  const victim = sleeper({ PATH });
  const other = sleeper({ PATH, HEDDLE_TASK: "node-1/job_B/1/0" });
  const own = sleeper({ PATH, HEDDLE_TASK: "node-1/job_A/1/0" });
  const pids = [victim, other, own].map(({ pid }) => pid as number);
  const isolation = await Isolation.find({
    dataDirectory: folder,
    checkpointRoot: join(folder, "checkpoints"),
    programs: [],
    onFault: (message) => console.warn(message),
    taskUsers: "own",
  });
  const executor = new ProcessExecutor("node-1", undefined, isolation);
  const launch = { plan, directory: folder } as unknown as TaskLaunch;
  const records = pids.slice(0, 2).map((pid) => readProcess(pid));
  const forged = [
    ...records,
    ...records.map((record) => ({ ...record, startTime: 1 })),
    { pid: 1, startTime: 1 },
    { pid: 0, startTime: 0 },
    { pid: -1 },
    { pid: "1" },
    null,
    "x",
  ];
  const ended = once(own, "exit");
  for (const record of forged) {
    const handle = await executor.adopt(launch, record);
    handle?.killNow(ProcessScan.now());
    await handle?.kill();
    await handle?.exited;
  }
  expect(pids.slice(0, 2).every(isProcessAlive)).toBe(true);
  // A process with the task's mark belongs to the task, whatever its record contains.
  await ended;
});

test("group: belongs to a task only while a member carries the task's mark", async () => {
  const line = "sleep 600 & exec env -u HEDDLE_TASK sleep 600";
  const child = spawn("/bin/sh", ["-c", line], {
    detached: true,
    stdio: "ignore",
    env: { PATH: process.env["PATH"], HEDDLE_TASK: "node-1/job_C/1/0" },
  });
  const leader = readProcess(child.pid as number);
  onTestFinished(() => {
    process.kill(-(child.pid as number), "SIGKILL");
  });
  await expect
    .poll(() => ProcessScan.now().processesOf(leader, "node-1/job_C/1/0").length, {
      timeout: 50_000,
    })
    .toBe(2);
  expect(ProcessScan.now().processesOf(leader, "node-1/job_D/1/0")).toEqual([]);
  expect(ProcessScan.now().processesOf(leader, "node-1/job_D/1/0", true)).toHaveLength(2);
});

import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import {
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "@heddle/base/testing/until";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { newLeader, shell, taskId } from "../../../test/test-leader.ts";
import { USER_VARIABLE } from "../executors/process-tree.ts";
import { TaskUsers } from "./task-users.ts";

vi.setConfig({ testTimeout: 90_000 });

const isRoot = process.getuid?.() === 0;
const range = { first: 1_911_000_000, last: 1_911_000_003 };
let root = "";
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "heddle-users-"));
});
afterEach(() => rmSync(root, { recursive: true }));

test("users: a job id does not reveal its user; workers on one checkpoint root agree", () => {
  const wide = { first: 1_912_000_000, last: 1_912_999_999 };
  const jobs = Array.from({ length: 20 }, (_, i) => `job_${i}`);
  const guess = (job: string) =>
    wide.first + (createHash("sha256").update(job).digest().readUInt32LE() % 1_000_000);
  const chosen = (at: string) =>
    jobs.map((job) => new TaskUsers(wide, at).acquire(job, join(at, job)));
  expect(chosen(root)).toEqual(chosen(root));
  expect(chosen(root)).not.toEqual(chosen(join(root, "others")));
  expect(chosen(root)).not.toEqual(jobs.map(guess));
});

test.runIf(isRoot)(
  "users: none that another job has on this machine is given to a job",
  async () => {
    mkdirSync(join(root, "job_A"));
    chownSync(join(root, "job_A"), range.first, range.first);
    // Of another worker's task, and what a task has left running.
    const environment = { [USER_VARIABLE]: String(range.first + 1), HEDDLE_TASK: "node/job_B/1/0" };
    const wrapper = spawn("sleep", ["600"], { env: { ...process.env, ...environment } });
    const stray = spawn("sleep", ["600"], { uid: range.first + 2, gid: range.first + 2 });
    try {
      await Promise.all([wrapper, stray].map((child) => once(child, "spawn")));
      for (let i = 0; i < 30; i++) {
        const user = new TaskUsers(range, root).acquire(`job_${i}`, join(root, `job_${i}`));
        expect(user).toBe(range.last);
      }
      const again = (job: string) => new TaskUsers(range, root).acquire(job, join(root, job));
      expect(again("job_A")).toBe(range.first);
      expect([range.first + 1, range.last]).toContain(again("job_B"));
    } finally {
      for (const child of [wrapper, stray]) child.kill("SIGKILL");
    }
  },
);

test.runIf(isRoot)(
  "users: a program that leaves its task without a mark ends with it",
  async (context) => {
    const leader = await newLeader(context);
    await leader.startWorker({ taskUsers: range });
    const session = leader.open();
    // Its own session, parent and environment: without its cgroup nothing but the user is left.
    const line = `setsid env -i /bin/sh -c '/bin/sleep ${seconds} & exit'; echo gone; sleep 600`;
    await session.start(shell(line));
    await until("it has left", () => leader.log() === "gone\n" && sleepers().length > 0);
    for (const mount of ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]) {
      const file = join(mount, "cgroup.procs");
      if (existsSync(file)) for (const pid of sleepers()) writeFileSync(file, pid);
    }
    session.send({ stop: { task: taskId(), checkpoint: false, graceMs: 100, why: "cancelled" } });
    await session.reaches("exited");
    expect(sleepers()).toEqual([]);
  },
);

const seconds = `${1_000_000 + process.pid}`;

/** Processes that sleep for so long. */
function sleepers(): string[] {
  return readdirSync("/proc").filter((pid) => {
    if (!/^\d+$/.test(pid)) return false;
    try {
      return readFileSync(`/proc/${pid}/cmdline`, "latin1") === `/bin/sleep\0${seconds}\0`;
    } catch {
      return false; // It has ended.
    }
  });
}

// holds: task-users

import { type ChildProcess, spawn } from "node:child_process";
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
import { createInterface } from "node:readline";
import { until } from "@heddle/base/testing/until";
import type { UserRange } from "@heddle/node-agent/offer-flags";
import { afterEach, beforeEach, expect, test } from "vitest";
import { newLeader, shell, taskId } from "../../../test/test-leader.ts";
import { USER_VARIABLE } from "../executors/process-tree.ts";
import { TaskUsers } from "./task-users.ts";
import { UserClaims } from "./user-claims.ts";

const isRoot = process.getuid?.() === 0;
const range = { first: 1_911_000_000, last: 1_911_000_003 };
let root = "";
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "heddle-users-"));
});
afterEach(() => rmSync(root, { recursive: true }));

/** The users of a new worker; all workers of a test are on one machine. */
function usersOf(own: UserRange, at: string): TaskUsers {
  return new TaskUsers(own, at, new UserClaims(at, [join(root, "claims")]));
}

test("users: a job id does not reveal its user; workers on one checkpoint root agree", () => {
  const wide = { first: 1_912_000_000, last: 1_912_999_999 };
  const jobs = Array.from({ length: 20 }, (_, i) => `job_${i}`);
  const guess = (job: string) =>
    wide.first + (createHash("sha256").update(job).digest().readUInt32LE() % 1_000_000);
  const chosen = (at: string) => {
    const users = usersOf(wide, at);
    return jobs.map((job) => users.acquire(job, join(at, job)));
  };
  expect(chosen(root)).toEqual(chosen(root));
  expect(chosen(root)).not.toEqual(chosen(join(root, "others")));
  expect(chosen(root)).not.toEqual(jobs.map(guess));
});

test("users: jobs of two workers that have begun nothing yet have different ones", () => {
  const pair = { first: range.first, last: range.first + 1 };
  const [a, b] = [usersOf(pair, join(root, "a")), usersOf(pair, join(root, "b"))];
  for (let i = 0; i < 12; i++) {
    const chosen = [a.acquire(`job_a${i}`, root), b.acquire(`job_b${i}`, root)];
    expect(chosen.sort()).toEqual([pair.first, pair.last]);
    a.release(`job_a${i}`);
    b.release(`job_b${i}`);
  }
});

/** A worker that acquires and releases users by lines as `acquire job_A`. */
const CHOOSER = `
const [users, claims, folder, range, root] = process.argv.slice(1);
const { TaskUsers } = await import(users);
const { UserClaims } = await import(claims);
const own = new TaskUsers(JSON.parse(range), root, new UserClaims(root, [folder]));
process.stdin.setEncoding("utf8").on("data", (line) => {
  const [verb, job] = line.trim().split(" ");
  process.stdout.write(own[verb](job, root) + "\\n");
});
process.stdout.write("ready\\n");
`;

function startChooser(name: string) {
  const modules = ["task-users.ts", "user-claims.ts"].map((file) =>
    import.meta.resolve(`./${file}`),
  );
  const given = [...modules, join(root, "claims"), JSON.stringify(range), join(root, name)];
  const child = spawn(process.execPath, ["--input-type=module", "-e", CHOOSER, ...given], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const answer = async () => String((await lines.next()).value);
  const ask = (line: string) => {
    child.stdin.write(`${line}\n`);
    return answer();
  };
  return { child, name, ready: answer(), ask };
}

test("users: workers that choose at once share none; that of a killed one is free", async () => {
  const workers = ["a", "b", "c", "d"].map(startChooser);
  try {
    await Promise.all(workers.map(({ ready }) => ready));
    const all = workers.map((_, at) => String(range.first + at));
    let chosen: string[] = [];
    for (let round = 0; round < 6; round++) {
      const inEach = (verb: string) =>
        Promise.all(workers.map(({ name, ask }) => ask(`${verb} job_${name}${round}`)));
      chosen = await inEach("acquire");
      expect([...chosen].sort()).toEqual(all);
      if (round < 5) await inEach("release");
    }
    const [first, , , last] = workers;
    last?.child.kill("SIGKILL");
    await once(last?.child as ChildProcess, "exit");
    expect(await first?.ask("acquire job_more")).toBe(chosen.at(-1));
  } finally {
    for (const { child } of workers) child.kill("SIGKILL");
  }
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
        const users = usersOf(range, root);
        expect(users.acquire(`job_${i}`, join(root, `job_${i}`))).toBe(range.last);
        users.release(`job_${i}`);
      }
      const again = (job: string) => usersOf(range, root).acquire(job, join(root, job));
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

/** Processes that sleep for this long. */
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

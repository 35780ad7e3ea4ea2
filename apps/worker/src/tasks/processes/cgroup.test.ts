// holds: task-cgroup

import { type ChildProcess, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { until } from "@heddle/base/testing/until";
import { afterEach, expect, test } from "vitest";
import { type Cgroup, CgroupBranch } from "./cgroup.ts";

const branch = CgroupBranch.open(`test-${randomUUID()}`);
const HALF_A_CORE = { memoryBytes: 64 * 2 ** 20, cpuMilli: 500 };

function skipsWithout(controller: string | undefined): boolean {
  const why =
    branch === undefined
      ? "this system has no cgroup v2 that this user may change (Linux 5.14 or newer)"
      : controller !== undefined && !branch.controllers.has(controller)
        ? `the ${controller} controller is not delegated to this process's cgroup v2`
        : undefined;
  if (why) console.log(`a test of cgroups is skipped: ${why}`);
  return why !== undefined;
}

const leaves: Cgroup[] = [];

function leafOf(limits = HALF_A_CORE): Cgroup {
  const leaf = branch!.leaf(`leaf-${leaves.length}`, limits);
  leaves.push(leaf);
  return leaf;
}

/** A shell that enters the leaf by itself, as a task's does, and then runs the line. */
function enter(leaf: Cgroup, line: string): ChildProcess {
  const entering = `echo $$ > ${leaf.entry} && ${line}`;
  return spawn("/bin/sh", ["-c", entering], { stdio: "ignore", detached: true });
}

afterEach(async () => {
  for (const leaf of leaves.splice(0)) {
    leaf.kill();
    await until("the leaf is empty and gone", () => leaf.remove());
  }
});

test.skipIf(skipsWithout(undefined))(
  "cgroup: children of a member are members, in any session, and die with it",
  async () => {
    const leaf = leafOf();
    const child = enter(leaf, "(setsid sh -c 'setsid sleep 600 & sleep 600' &); sleep 600");
    await until("all are members", () => leaf.members().length >= 4);
    expect(leaf.members()).toContain(child.pid);
    expect(branch!.leaves()).toContain("leaf-0");
    expect(leaf.remove()).toBe(false);
    const exited = once(child, "exit");
    leaf.kill();
    expect(await exited).toEqual([null, "SIGKILL"]);
    await until("none is left", () => leaf.members().length === 0);
    expect(branch!.find("leaf-0")?.path).toBe(leaf.path);
    expect(leaf.ranOutOfMemory()).toBe(false);
  },
);

test.skipIf(skipsWithout(undefined))(
  "cgroup: the branch exists while it has a leaf, and is made again",
  () => {
    for (let round = 0; round < 2; round++) {
      const [one, two] = [branch!.leaf("one", HALF_A_CORE), branch!.leaf("two", HALF_A_CORE)];
      expect(one.remove()).toBe(true);
      expect(existsSync(dirname(two.path))).toBe(true);
      expect(two.remove()).toBe(true);
      expect(existsSync(dirname(two.path))).toBe(false);
      expect(branch!.leaves()).toEqual([]);
    }
  },
);

test.skipIf(skipsWithout("memory"))(
  "cgroup: memory beyond the bound ends the whole leaf, which reports it",
  async () => {
    const leaf = leafOf();
    expect(readFileSync(join(leaf.path, "memory.max"), "utf8").trim()).toBe(String(64 * 2 ** 20));
    const line = `sleep 600 & exec ${process.execPath} -e 'const held=[];setInterval(()=>held.push(Buffer.alloc(1e7,1)),10)'`;
    const child = enter(leaf, line);
    const [code, signal] = await once(child, "exit");
    expect(signal ?? code).not.toBe(0);
    await until("all are dead", () => leaf.members().length === 0);
    expect(leaf.ranOutOfMemory()).toBe(true);
  },
);

test.skipIf(skipsWithout("cpu"))(
  "cgroup: half a core is half of each period, for any number of processes",
  async () => {
    const leaf = leafOf();
    expect(readFileSync(join(leaf.path, "cpu.max"), "utf8").trim()).toBe("50000 100000");
    enter(leaf, "(while :; do :; done) & while :; do :; done");
    const usedUs = () =>
      Number(/^usage_usec (\d+)$/m.exec(readFileSync(join(leaf.path, "cpu.stat"), "utf8"))?.[1]);
    const throttled = () =>
      Number(/^nr_throttled (\d+)$/m.exec(readFileSync(join(leaf.path, "cpu.stat"), "utf8"))?.[1]);
    await until("it was held back", () => throttled() >= 10);
    expect(usedUs()).toBeGreaterThan(0);
  },
);

test.skipIf(skipsWithout("pids"))("cgroup: a task has a bound on its processes", () => {
  const leaf = leafOf();
  const bound = readFileSync(join(leaf.path, "pids.max"), "utf8").trim();
  expect(bound).toBe("32768");
});

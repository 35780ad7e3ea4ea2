// holds: ops-containers-offer

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { resourceLimits } from "./control-groups.ts";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "heddle-groups-"));
});
afterEach(() => rmSync(folder, { recursive: true }));

/** The limits in these files of the kernel, each with a name for its group. */
function limitsOf(membership: string, files: Readonly<Record<string, string>>) {
  writeFileSync(join(folder, "membership"), membership);
  const root = join(folder, "root");
  mkdirSync(root);
  for (const [name, content] of Object.entries(files)) {
    mkdirSync(dirname(join(root, name)), { recursive: true });
    writeFileSync(join(root, name), `${content}\n`);
  }
  const limits = resourceLimits({ membership: join(folder, "membership"), root });
  const ids = limits.map(({ id }) => id);
  expect(new Set(ids).size).toBe(limits.length);
  return limits.map(({ memoryBytes, cpuMilli }) => [memoryBytes, cpuMilli]);
}

const GIB = 2 ** 30;

test("version 2: each ancestor group with a limit of memory or cores counts", () => {
  const files = {
    "memory.max": `${8 * GIB}`,
    "a/memory.max": "max",
    "a/cpu.max": "max 100000",
    "a/b/memory.max": `${4 * GIB}`,
    "a/b/cpu.max": "150000 100000",
    "a/other/memory.max": "1",
  };
  expect(limitsOf("0::/a/b\n", files)).toEqual([
    [4 * GIB, 1_500],
    [8 * GIB, 0],
  ]);
});

test("version 1: memory and cores have separate hierarchies", () => {
  const files = {
    "memory/docker/x/memory.limit_in_bytes": `${2 * GIB}`,
    "memory/memory.limit_in_bytes": "9223372036854771712",
    "cpu/docker/x/cpu.cfs_quota_us": "50000",
    "cpu/docker/x/cpu.cfs_period_us": "100000",
    "cpu/cpu.cfs_quota_us": "-1",
    "cpu/cpu.cfs_period_us": "100000",
  };
  const membership =
    "12:memory:/docker/x\n11:cpu,cpuacct:/docker/x\n1:name=systemd:/docker/x\n0::/\n";
  expect(limitsOf(membership, files)).toEqual([
    [2 * GIB, 0],
    [0, 500],
  ]);
});

test("container: one that sees its own group as the root is bound by that", () => {
  const files = { "memory.max": `${GIB}`, "cpu.max": "200000 100000" };
  expect(limitsOf("0::/../../docker/x\n", files)).toEqual([[GIB, 2_000]]);
});

test("no control groups: there are no limits", () => {
  expect(limitsOf("", {})).toEqual([]);
});

// holds: task-lease-guard

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { bootId } from "@heddle/base/process-alive";
import { afterEach, beforeEach, expect, test } from "vitest";
import { MARK_VARIABLE } from "../executors/process-tree.ts";
import { bootClock } from "./lease.ts";
import type { GuardOrders } from "./lease-guard.ts";

const program = fileURLToPath(new URL("lease-guard-main.ts", import.meta.url));
const farMs = 1e12;

let directory: string;
let task: ChildProcess;
let guard: ChildProcess | undefined;
beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), "heddle-guard-"));
  task = spawn("sleep", ["600"], {
    env: { ...process.env, [MARK_VARIABLE]: `${nodeId()}/job_A/1/0` },
    stdio: "ignore",
  });
  await once(task, "spawn");
});
afterEach(() => {
  for (const child of [task, guard]) child?.kill("SIGKILL");
  rmSync(directory, { recursive: true });
});

function nodeId(): string {
  return `node-of-${directory.split("-").at(-1)}`;
}

/** The guard of a worker that has ended, and left this lease. */
async function guardOfEndedWorker(kept: { boot: string; expiresAtMs: number }): Promise<void> {
  const leaseFile = join(directory, "lease.json");
  writeFileSync(leaseFile, JSON.stringify(kept));
  const orders: GuardOrders = {
    nodeId: nodeId(),
    boot: bootId(),
    dataDirectory: directory,
    leaseFile,
    cgroup: "",
    containerCli: "",
  };
  guard = spawn(process.execPath, [program, JSON.stringify(orders)], {
    stdio: ["ignore", "ignore", "inherit"],
  });
  await once(guard, "spawn");
}

test("lease guard: a lease of this boot holds until its expiry, and no longer", async () => {
  const ended = once(task, "exit");
  const expiresAtMs = bootClock.monotonicMs() + 3_000;
  await guardOfEndedWorker({ boot: bootId(), expiresAtMs });
  await ended;
  expect(bootClock.monotonicMs()).toBeGreaterThanOrEqual(expiresAtMs);
});

test("lease guard: a lease of an earlier boot has ended, whatever its expiry", async () => {
  const ended = once(task, "exit");
  await guardOfEndedWorker({ boot: "another", expiresAtMs: farMs });
  await ended;
  await once(guard as ChildProcess, "exit");
});

import { readFileSync, writeFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { REVOKE_SIGNAL } from "@heddle/node-agent/lease-guard-record";
import { ContainerCli } from "../containers/container-cli.ts";
import { removeContainers } from "../containers/container-executor.ts";
import { ProcessScan } from "../executors/process-scan.ts";
import { killAllButLeader, signalProcess } from "../executors/process-tree.ts";
import { bootClock } from "./lease.ts";
import { GUARD_END, type GuardOrders } from "./lease-guard.ts";

// The process that ends a worker's tasks when their lease has expired. It lives as long as the
// worker needs it, and after the worker's death until no task is left. The signal
// of `REVOKE_SIGNAL` ends the lease of a dead worker at once.

const CHECK_MS = 200;
/** After the worker's death, how long it tries to kill a task. */
const MAX_ORPHAN_SWEEP_MS = 10 * 60_000;
/** The processes that lead tasks end by themselves, or are killed after this many rounds. */
const MAX_LEADER_ROUNDS = 40;

const orders = JSON.parse(process.argv[2] ?? "{}") as GuardOrders;
let expiresAtMs = Number.NEGATIVE_INFINITY;
let isOrphan = false;
/** The lease was revoked since the last renewal. */
let isRevoked = false;
let isRemoving = false;
let rounds = 0;
/** Users of the worker's tasks at its death, or at the lease's end. */
const users = new Set<number>();

for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const) process.on(signal, () => undefined);
process.on(REVOKE_SIGNAL, () => {
  isRevoked = true;
});
const lines = createInterface({ input: process.stdin });
lines.on("line", (line) => {
  if (line === GUARD_END) process.exit(0);
  const expiry = Number(line);
  if (!Number.isFinite(expiry)) return;
  expiresAtMs = expiry;
  isRevoked = false;
});
lines.on("close", () => {
  isOrphan = true;
});
setInterval(check, CHECK_MS);

function check(): void {
  const nowMs = bootClock.monotonicMs();
  if (isOrphan && isRevoked) expiresAtMs = Math.min(expiresAtMs, nowMs);
  else if (isOrphan) expiresAtMs = Math.max(expiresAtMs, keptExpiry());
  const overMs = nowMs - expiresAtMs;
  if (!isOrphan && overMs < 0) return;
  const scan = ProcessScan.now();
  for (const { user, mark } of scan.usersOfTasks())
    if (mark.startsWith(`${orders.nodeId}/`)) users.add(user);
  if (overMs < 0) return;
  const left = endProcesses(scan);
  if (isRemoving) return;
  isRemoving = true;
  void endContainers().finally(() => {
    isRemoving = false;
    if (isOrphan && (left === 0 || overMs > MAX_ORPHAN_SWEEP_MS)) process.exit(0);
  });
}

/** The latest stored expiry: another process of the worker may have renewed the lease. */
function keptExpiry(): number {
  try {
    const kept = JSON.parse(readFileSync(orders.leaseFile, "utf8")) as {
      boot?: string;
      expiresAtMs?: number;
    };
    return kept.boot === orders.boot ? Number(kept.expiresAtMs) : Number.NEGATIVE_INFINITY;
  } catch {
    return Number.NEGATIVE_INFINITY;
  }
}

/** Kills every process of the worker's tasks; returns their number. */
function endProcesses(scan: ProcessScan): number {
  if (orders.cgroup !== "") {
    try {
      writeFileSync(`${orders.cgroup}/cgroup.kill`, "1");
    } catch {
      // The branch exists only while a task does.
    }
  }
  const found = new Set<number>();
  const isOwn = (mark: string) => mark.startsWith(`${orders.nodeId}/`);
  const tasks = scan.markedTasks(isOwn);
  rounds = tasks.length === 0 ? 0 : rounds + 1;
  for (const { leader, others } of tasks) {
    const pids = [...others, ...(leader ? [leader] : [])].map(({ pid }) => pid);
    for (const pid of pids) found.add(pid);
    killAllButLeader(leader?.pid, pids);
    if (leader && rounds > MAX_LEADER_ROUNDS) signalProcess(leader.pid, "SIGKILL");
  }
  for (const { pid } of scan.straysOf(users)) if (signalProcess(pid, "SIGKILL")) found.add(pid);
  return found.size;
}

async function endContainers(): Promise<void> {
  const { containerCli, nodeId } = orders;
  if (containerCli === "") return;
  // An unresponsive engine is asked again at the next check.
  await removeContainers(new ContainerCli(containerCli), nodeId, new Set()).catch(() => undefined);
}

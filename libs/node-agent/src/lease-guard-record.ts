import { readFileSync } from "node:fs";
import { join } from "node:path";
import { bootId, handlesSignal, isSameProcess, processStart } from "@heddle/base/process-alive";
import { replaceFileSync } from "@heddle/base/replace-file";

/** In the worker's data directory, which no task can write. */
const FILE = "lease-guard.json";

/** Ends the lease of a worker that has ended, when its lease guard receives it. */
export const REVOKE_SIGNAL = "SIGUSR2";

interface LeaseGuardRecord {
  readonly pid: number;
  readonly boot: string;
  readonly started: string;
}

/** Records the worker's lease guard, a child of this process. Does nothing on systems without /proc. */
export function recordLeaseGuard(dataDirectory: string, pid: number): void {
  const started = processStart(pid);
  if (started === undefined) return;
  const record: LeaseGuardRecord = { pid, boot: bootId(), started };
  replaceFileSync(join(dataDirectory, FILE), JSON.stringify(record));
}

/**
 * Has the lease guard of an ended worker end the worker's tasks now. False where no guard runs, or no
 * more. To be repeated while true: a guard that has just started is not signalled yet.
 */
export function revokeLease(dataDirectory: string): boolean {
  const guard = liveLeaseGuard(dataDirectory);
  if (guard === undefined) return false;
  if (!handlesSignal(guard, REVOKE_SIGNAL)) return true;
  try {
    return process.kill(guard, REVOKE_SIGNAL);
  } catch {
    return false; // It has just ended.
  }
}

/** A later process with the id of an ended guard is no guard. */
function liveLeaseGuard(dataDirectory: string): number | undefined {
  const kept = readRecord(join(dataDirectory, FILE));
  const isLive = kept?.boot === bootId() && isSameProcess(kept.pid, kept.started);
  return isLive ? kept.pid : undefined;
}

/** Undefined where no task of the worker has run yet. */
function readRecord(path: string): LeaseGuardRecord | undefined {
  try {
    const { pid, boot, started } = JSON.parse(readFileSync(path, "utf8")) as LeaseGuardRecord;
    const isWhole = [boot, started].every((each) => typeof each === "string");
    return isWhole && typeof pid === "number" ? { pid, boot, started } : undefined;
  } catch {
    return undefined;
  }
}

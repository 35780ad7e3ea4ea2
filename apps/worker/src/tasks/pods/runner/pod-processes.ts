import { readdirSync, readFileSync } from "node:fs";
import { constants } from "node:os";

/** All processes of the container but the runner, which is the first one. */
function otherProcesses(): number[] {
  return readdirSync("/proc")
    .map(Number)
    .filter((pid) => Number.isSafeInteger(pid) && pid > 1 && isRunning(pid));
}

/** Signals the processes, or those that handle it; returns their number. */
export function signalAll(signal: NodeJS.Signals, onlyCaught = false): number {
  let count = 0;
  for (const pid of otherProcesses()) {
    if (onlyCaught && !handles(pid, signal)) continue;
    try {
      process.kill(pid, signal);
      count += 1;
    } catch {
      // It has ended.
    }
  }
  return count;
}

function isRunning(pid: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    return !/^[ZX]/.test(stat.slice(stat.lastIndexOf(")") + 2));
  } catch {
    return false;
  }
}

function handles(pid: number, signal: NodeJS.Signals): boolean {
  try {
    const status = readFileSync(`/proc/${pid}/status`, "latin1");
    const mask = BigInt(`0x${/^SigCgt:\s*([0-9a-f]+)$/m.exec(status)?.[1] ?? "0"}`);
    return ((mask >> BigInt(constants.signals[signal] - 1)) & 1n) === 1n;
  } catch {
    return false;
  }
}

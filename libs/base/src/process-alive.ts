import { readFileSync } from "node:fs";
import { constants } from "node:os";

/** Whether a process of this machine has the id, under any user; a zombie counts as alive. */
export function isProcessAlive(pid: number): boolean {
  // For these ids kill(2) addresses a process group, or all processes.
  if (!Number.isSafeInteger(pid) || pid <= 0) return false;
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

/**
 * The start of the process in ticks since boot (proc(5), field 22 of stat): with its id it identifies
 * the process until the next boot. Undefined if it has ended, and on systems without /proc.
 */
export function processStart(pid: number): string | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    // The name is in parentheses and may contain anything, parentheses too.
    const [state = "", ...fields] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return /^[ZX]/.test(state) ? undefined : fields[18];
  } catch {
    return undefined;
  }
}

/** Whether the process with the id and the start is alive; without a start the id must suffice. */
export function isSameProcess(pid: number, started: string | undefined): boolean {
  return isProcessAlive(pid) && (processStart(pid) ?? "") === (started ?? "");
}

/** Whether the process has a handler of its own for the signal. */
export function handlesSignal(pid: number, signal: NodeJS.Signals): boolean {
  try {
    const status = readFileSync(`/proc/${pid}/status`, "latin1");
    const mask = /^SigCgt:\s*([0-9a-f]+)$/m.exec(status)?.[1] ?? "0";
    return ((BigInt(`0x${mask}`) >> BigInt(constants.signals[signal] - 1)) & 1n) === 1n;
  } catch {
    return false;
  }
}

/** Identifies the machine's current boot; `unknown` on systems without /proc. */
export function bootId(): string {
  try {
    return readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
  } catch {
    return "unknown";
  }
}

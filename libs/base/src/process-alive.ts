import { readFileSync } from "node:fs";

/** Whether a process of this machine has the id, whoever's it is; one that waits to be reaped counts. */
export function isProcessAlive(pid: number): boolean {
  // Of these the system would ask a group, or all.
  if (!Number.isSafeInteger(pid) || pid <= 0) return false;
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

/**
 * When the process began, in ticks since boot (proc(5), field 22 of stat), which names it for ever with
 * its id; undefined where it is gone, and on systems without /proc.
 */
export function processStart(pid: number): string | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    // The name stands in parentheses and may hold anything, parentheses too.
    return stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19];
  } catch {
    return undefined;
  }
}

/** Whether the process is alive that had the id when `started` was read; without a start the id must do. */
export function isSameProcess(pid: number, started: string | undefined): boolean {
  return isProcessAlive(pid) && (processStart(pid) ?? "") === (started ?? "");
}

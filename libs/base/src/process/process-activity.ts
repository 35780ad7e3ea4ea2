import { readFileSync } from "node:fs";

/** What a process does now, and has done. */
interface ProcessActivity {
  /** Its main thread runs, waits for a processor, or for a disk. */
  readonly isActive: boolean;
  /** Processor time of all its threads so far. */
  readonly cpuTicks: number;
}

/** By proc(5), stat; undefined where the process has ended, and on systems without /proc. */
export function processActivity(pid: number | undefined): ProcessActivity | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    // The name is in parentheses and may contain anything, parentheses too.
    const [state = "", ...fields] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    const [user, system] = fields.slice(10, 12).map(Number);
    return { isActive: state === "R" || state === "D", cpuTicks: (user ?? 0) + (system ?? 0) };
  } catch {
    return undefined;
  }
}

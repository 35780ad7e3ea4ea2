import { readFileSync } from "node:fs";

/** Each process of a task carries its mark here, also one that has left the task's group. */
export const MARK_VARIABLE = "HEDDLE_TASK";

/** The leader of a task with its own user carries the user's id here. */
export const USER_VARIABLE = "HEDDLE_TASK_USER";

/**
 * Copiers of a task's output carry its mark here, its own processes in another variable. So they are
 * not stopped, counted or killed with it, and still write its last output.
 */
export const COPIER_VARIABLE = "HEDDLE_OUTPUT_OF";

/** The guards of a worker carry its node id here, so that a later process of it finds them. */
export const GUARD_VARIABLE = "HEDDLE_LEASE_GUARD";

const MARKS = [MARK_VARIABLE, USER_VARIABLE, COPIER_VARIABLE, GUARD_VARIABLE] as const;
const pageBytes = pageSize();

/** One process of /proc. */
export interface ProcessEntry {
  readonly pid: number;
  readonly parent: number;
  readonly group: number;
  readonly session: number;
  /** In ticks since boot; with the pid it identifies a process uniquely. */
  readonly startTime: number;
  /** Memory in bytes, with the pages that it shares. */
  readonly residentBytes: number;
}

/** The process, or undefined where it has ended, is a zombie, or there is no /proc. */
export function readProcess(pid: number): ProcessEntry | undefined {
  const text = readText(`/proc/${pid}/stat`);
  if (text === undefined) return undefined;
  // The name is in parentheses and may contain anything, parentheses too.
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  const [state, parent, group, session] = fields;
  if (state === "Z" || state === "X") return undefined;
  return {
    pid,
    parent: Number(parent),
    group: Number(group),
    session: Number(session),
    startTime: Number(fields[19]),
    residentBytes: Number(fields[21]) * pageBytes,
  };
}

/** Identifies a process across restarts: pids are reused, but not with the same start time. */
export interface ProcessRecord {
  readonly pid: number;
  readonly startTime: number;
}

/** Kills the processes but the task's leader, which then ends; a stopped one is continued for that. */
export function killAllButLeader(leader: number | undefined, pids: readonly number[]): number {
  const others = pids.filter((pid) => pid !== leader);
  const killed = others.filter((pid) => signalProcess(pid, "SIGKILL")).length;
  if (leader !== undefined && leader > 1 && pids.includes(leader)) signalProcess(leader, "SIGCONT");
  return killed;
}

/** The real user of the process. */
export function userOf(pid: number): number | undefined {
  const found = /^Uid:\s+(\d+)/m.exec(readText(`/proc/${pid}/status`) ?? "")?.[1];
  return found === undefined ? undefined : Number(found);
}

/**
 * Bytes of memory of the processes. The cheap figure counts shared pages once for each process.
 * Only where it exceeds `limitBytes` the exact one is read, which walks their page tables.
 */
export function memoryOf(processes: readonly ProcessEntry[], limitBytes: number): number {
  const resident = total(processes, ({ residentBytes }) => residentBytes);
  if (limitBytes === 0 || resident <= limitBytes) return resident;
  return total(processes, ({ pid }) => kilobytes(`/proc/${pid}/smaps_rollup`, /^Pss:\s+(\d+)/m));
}

/** Sends the signal; false where the process has ended. */
export function signalProcess(pid: number, signal: NodeJS.Signals): boolean {
  try {
    return process.kill(pid, signal);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ESRCH" || code === "EPERM") return false;
    throw error;
  }
}

/** The process's initial mark as one of a task. */
export function markOf(pid: number): string | undefined {
  return marksOf(pid).get(MARK_VARIABLE);
}

/** All its initial marks, by variable. */
export function marksOf(pid: number): Map<string, string> {
  const marks = new Map<string, string>();
  const text = readText(`/proc/${pid}/environ`);
  if (!text || !MARKS.some((name) => text.includes(name))) return marks;
  for (const entry of text.split("\0")) {
    const name = MARKS.find((each) => entry.startsWith(`${each}=`));
    if (name && !marks.has(name)) marks.set(name, entry.slice(name.length + 1));
  }
  return marks;
}

function total<Item>(items: readonly Item[], of: (item: Item) => number): number {
  return items.reduce((sum, item) => sum + of(item), 0);
}

/** The kernel gives each process the size in its auxiliary vector, as pairs of words. */
function pageSize(): number {
  const [pageSizeKey, usual] = [6n, 4_096];
  try {
    const words = new BigUint64Array(new Uint8Array(readFileSync("/proc/self/auxv")).buffer);
    const at = words.findIndex((word, index) => index % 2 === 0 && word === pageSizeKey);
    return at < 0 ? usual : Number(words[at + 1]);
  } catch {
    return usual; // No Linux.
  }
}

function kilobytes(path: string, field: RegExp): number {
  return Number(field.exec(readText(path) ?? "")?.[1] ?? 0) * 1024;
}

function readText(path: string): string | undefined {
  try {
    // The one encoding that Node reads in a single call.
    return readFileSync(path, "utf8");
  } catch {
    return undefined; // It ended meanwhile, or belongs to another user.
  }
}

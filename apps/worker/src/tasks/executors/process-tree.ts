import { readdirSync, readFileSync } from "node:fs";

/** Each process of a task carries its mark here, also one that has left the task's group. */
export const MARK_VARIABLE = "HEDDLE_TASK";

/** What leads a task with a user of its own carries the user's id here. */
export const USER_VARIABLE = "HEDDLE_TASK_USER";

/** One look through /proc serves every task that is watched within this time. */
const recentMs = 400;
let recent: { readonly atMs: number; readonly processes: readonly ProcessEntry[] } = {
  atMs: Number.NEGATIVE_INFINITY,
  processes: [],
};

/** One process as /proc shows it. */
export interface ProcessEntry {
  readonly pid: number;
  readonly parent: number;
  readonly group: number;
  readonly session: number;
  /** In ticks since boot; with the pid it names a process for ever. */
  readonly startTime: number;
}

/** The process, or undefined where it is gone or a zombie, or where there is no /proc. */
export function readProcess(pid: number): ProcessEntry | undefined {
  const text = readText(`/proc/${pid}/stat`);
  if (text === undefined) return undefined;
  // The name stands in parentheses and may hold anything, parentheses too.
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  const [state, parent, group, session] = fields;
  if (state === "Z" || state === "X") return undefined;
  return {
    pid,
    parent: Number(parent),
    group: Number(group),
    session: Number(session),
    startTime: Number(fields[19]),
  };
}

/** What finds a process again: a pid is used anew, but not with the same time of start. */
export interface ProcessRecord {
  readonly pid: number;
  readonly startTime: number;
}

/**
 * The processes of a task: those that carry its mark, those of its leader's group and session, and
 * whatever descends from any of them. A group in which none carries the mark is not the task's,
 * whatever a record says of its leader; of a leader that this process itself has started it is.
 */
export function processesOf(
  leader: ProcessRecord | undefined,
  mark: string,
  isOwn = false,
): ProcessEntry[] {
  const all = allProcesses();
  const marked = all.filter(({ pid }) => markOf(pid) === mark);
  const found = new Map(marked.map((each) => [each.pid, each]));
  const near = leader ? nearOf(leader, all) : [];
  if (isOwn || near.some(({ pid }) => found.has(pid))) {
    for (const each of near) found.set(each.pid, each);
  }
  for (let grew = true; grew; ) {
    grew = false;
    for (const each of all) {
      if (found.has(each.pid) || !found.has(each.parent)) continue;
      found.set(each.pid, each);
      grew = true;
    }
  }
  return [...found.values()];
}

function nearOf({ pid, startTime }: ProcessRecord, all: readonly ProcessEntry[]): ProcessEntry[] {
  // Whose session is one of another container has none here.
  if (pid <= 1) return [];
  // The id of a leader that is gone may by now be that of a stranger's group.
  const holder = all.find((each) => each.pid === pid);
  if (holder !== undefined && holder.startTime !== startTime) return [];
  return all.filter(({ group, session }) => group === pid || session === pid);
}

/** The processes of a group and session as they were a moment ago, for who looks often. */
export function groupOf(leader: { readonly pid: number }): number[] {
  if (performance.now() - recent.atMs > recentMs) {
    recent = { atMs: performance.now(), processes: allProcesses() };
  }
  return recent.processes
    .filter(({ group, session }) => group === leader.pid || session === leader.pid)
    .map(({ pid }) => pid);
}

/** The processes that carry a mark, with it; `variable` is where they do. */
export function markedProcesses(
  variable: string = MARK_VARIABLE,
): { readonly pid: number; readonly mark: string }[] {
  return allProcesses().flatMap(({ pid }) => {
    const mark = markOf(pid, variable);
    return mark === undefined ? [] : [{ pid, mark }];
  });
}

/** The users of tasks that live on this machine, of whatever worker; tasks cannot add any. */
export function usersOfTasks(): { readonly user: number; readonly mark: string }[] {
  const own = process.getuid?.();
  return markedProcesses(USER_VARIABLE)
    .filter(({ pid }) => userOf(pid) === own)
    .map(({ pid, mark }) => ({ user: Number(mark), mark: markOf(pid) ?? "" }));
}

/** The processes of users of whom no task lives any more: they have left it without a trace but that. */
export function straysOf(users: ReadonlySet<number>): ProcessEntry[] {
  if (users.size === 0) return [];
  const live = new Set(usersOfTasks().map(({ user }) => user));
  const isStray = (user = -1) => users.has(user) && !live.has(user);
  return allProcesses().filter(({ pid }) => isStray(userOf(pid)));
}

/** The users of all processes. */
export function usersOfProcesses(): Set<number> {
  return new Set(allProcesses().flatMap(({ pid }) => userOf(pid) ?? []));
}

function userOf(pid: number): number | undefined {
  const found = /^Uid:\s+(\d+)/m.exec(readText(`/proc/${pid}/status`) ?? "")?.[1];
  return found === undefined ? undefined : Number(found);
}

/** Whether the process handles the signal itself, by its number. */
export function catches(pid: number, signalNumber: number): boolean {
  const mask = /^SigCgt:\s*([0-9a-f]+)$/m.exec(readText(`/proc/${pid}/status`) ?? "")?.[1];
  if (mask === undefined) return false;
  return ((BigInt(`0x${mask}`) >> BigInt(signalNumber - 1)) & 1n) === 1n;
}

/**
 * Bytes of memory that the processes hold. The cheap figure counts shared pages once per process;
 * only where it passes `limitBytes` the exact one is taken, which walks their page tables.
 */
export function memoryOf(pids: readonly number[], limitBytes: number): number {
  const resident = total(pids, (pid) => kilobytes(`/proc/${pid}/status`, /^VmRSS:\s+(\d+)/m));
  if (limitBytes === 0 || resident <= limitBytes) return resident;
  return total(pids, (pid) => kilobytes(`/proc/${pid}/smaps_rollup`, /^Pss:\s+(\d+)/m));
}

/** Sends the signal; false where the process is gone. */
export function signalProcess(pid: number, signal: NodeJS.Signals): boolean {
  try {
    return process.kill(pid, signal);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ESRCH" || code === "EPERM") return false;
    throw error;
  }
}

function allProcesses(): ProcessEntry[] {
  return listProc().flatMap((name) => readProcess(Number(name)) ?? []);
}

function listProc(): string[] {
  try {
    return readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  } catch {
    return []; // A system without /proc: there is only the group.
  }
}

/** The mark that the process was started with. */
export function markOf(pid: number, variable: string = MARK_VARIABLE): string | undefined {
  const text = readText(`/proc/${pid}/environ`);
  if (!text?.includes(variable)) return undefined;
  const prefix = `${variable}=`;
  const entry = text.split("\0").find((variable) => variable.startsWith(prefix));
  return entry?.slice(prefix.length);
}

function total(pids: readonly number[], of: (pid: number) => number): number {
  return pids.reduce((sum, pid) => sum + of(pid), 0);
}

function kilobytes(path: string, field: RegExp): number {
  return Number(field.exec(readText(path) ?? "")?.[1] ?? 0) * 1024;
}

function readText(path: string): string | undefined {
  try {
    return readFileSync(path, "latin1");
  } catch {
    return undefined; // It ended meanwhile, or is another user's.
  }
}

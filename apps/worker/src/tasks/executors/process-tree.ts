import { readdirSync, readFileSync } from "node:fs";

/** Each process of a task carries its mark here, also one that has left the task's group. */
export const MARK_VARIABLE = "HEDDLE_TASK";

/** The leader of a task with its own user carries the user's id here. */
export const USER_VARIABLE = "HEDDLE_TASK_USER";

/** One scan of /proc serves every watched task within this time. */
const recentMs = 400;
let recent: { readonly atMs: number; readonly processes: readonly ProcessEntry[] } = {
  atMs: Number.NEGATIVE_INFINITY,
  processes: [],
};

/** One process of /proc. */
export interface ProcessEntry {
  readonly pid: number;
  readonly parent: number;
  readonly group: number;
  readonly session: number;
  /** In ticks since boot; with the pid it identifies a process uniquely. */
  readonly startTime: number;
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
  };
}

/** Identifies a process across restarts: pids are reused, but not with the same start time. */
export interface ProcessRecord {
  readonly pid: number;
  readonly startTime: number;
}

/**
 * The processes of a task: those with its mark, those of its leader's group and session, and all
 * descendants. A group counts only if one of its processes carries the mark, or if this process
 * started its leader.
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

/** A task as its processes show it. */
interface MarkedTask {
  readonly mark: string;
  /** The wrapper, which ends by itself after all others: what they leave behind becomes its child. */
  readonly leader: ProcessEntry | undefined;
  readonly others: readonly ProcessEntry[];
}

/** The tasks of which processes with such a mark live. */
export function markedTasks(isMark: (mark: string) => boolean): MarkedTask[] {
  const marked = markedProcesses().filter(({ mark }) => isMark(mark));
  return [...Map.groupBy(marked, ({ mark }) => mark)].map(([mark, processes]) => {
    const entries = processes.flatMap(({ pid }) => readProcess(pid) ?? []);
    const leader = entries.find(({ pid, session }) => pid === session);
    const others = processesOf(leader, mark).filter(({ pid }) => pid !== leader?.pid);
    return { mark, leader, others };
  });
}

/** Kills the processes but the task's leader, which then ends; a stopped one is continued for that. */
export function killAllButLeader(leader: number | undefined, pids: readonly number[]): number {
  const others = pids.filter((pid) => pid !== leader);
  const killed = others.filter((pid) => signalProcess(pid, "SIGKILL")).length;
  if (leader !== undefined && leader > 1 && pids.includes(leader)) signalProcess(leader, "SIGCONT");
  return killed;
}

function nearOf({ pid, startTime }: ProcessRecord, all: readonly ProcessEntry[]): ProcessEntry[] {
  // A session of another container has no leader here.
  if (pid <= 1) return [];
  // The id of an ended leader may belong to another group by now.
  const holder = all.find((each) => each.pid === pid);
  if (holder !== undefined && holder.startTime !== startTime) return [];
  return all.filter(({ group, session }) => group === pid || session === pid);
}

/** The processes of a group and session at the last scan, for frequent callers. */
export function groupOf(leader: { readonly pid: number }): number[] {
  if (performance.now() - recent.atMs > recentMs) {
    recent = { atMs: performance.now(), processes: allProcesses() };
  }
  return recent.processes
    .filter(({ group, session }) => group === leader.pid || session === leader.pid)
    .map(({ pid }) => pid);
}

/** The processes that carry a mark, with it, in this variable. */
export function markedProcesses(
  variable: string = MARK_VARIABLE,
): { readonly pid: number; readonly mark: string }[] {
  return allProcesses().flatMap(({ pid }) => {
    const mark = markOf(pid, variable);
    return mark === undefined ? [] : [{ pid, mark }];
  });
}

/** The users of running tasks on this machine, of any worker; tasks cannot add any. */
export function usersOfTasks(): { readonly user: number; readonly mark: string }[] {
  const own = process.getuid?.();
  return markedProcesses(USER_VARIABLE)
    .filter(({ pid }) => userOf(pid) === own)
    .map(({ pid, mark }) => ({ user: Number(mark), mark: markOf(pid) ?? "" }));
}

/**
 * Processes of users without a running task: they left their task, and only their user shows it.
 */
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

/**
 * Bytes of memory of the processes. The cheap figure counts shared pages once for each process.
 * Only where it exceeds `limitBytes` the exact one is read, which walks their page tables.
 */
export function memoryOf(pids: readonly number[], limitBytes: number): number {
  const resident = total(pids, (pid) => kilobytes(`/proc/${pid}/status`, /^VmRSS:\s+(\d+)/m));
  if (limitBytes === 0 || resident <= limitBytes) return resident;
  return total(pids, (pid) => kilobytes(`/proc/${pid}/smaps_rollup`, /^Pss:\s+(\d+)/m));
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

/** The process's initial mark. */
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
    return undefined; // It ended meanwhile, or belongs to another user.
  }
}

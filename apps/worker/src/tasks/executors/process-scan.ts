import { readdirSync } from "node:fs";
import { FreshRun } from "@heddle/base/async/fresh-run";
import { runInTurns, runToEnd, STEP_ITEMS, type Steps } from "@heddle/base/async/steps";
import { systemClock } from "@heddle/base/clock";
import {
  MARK_VARIABLE,
  marksOf,
  type ProcessEntry,
  type ProcessRecord,
  readProcess,
  USER_VARIABLE,
  userOf,
} from "./process-tree.ts";
import { UnmarkedProcesses } from "./unmarked-processes.ts";

/** A task as its processes show it. */
interface MarkedTask {
  readonly mark: string;
  /** The wrapper, which ends by itself after all others: what they leave behind becomes its child. */
  readonly leader: ProcessEntry | undefined;
  readonly others: readonly ProcessEntry[];
}

/** A process that carries a mark. */
interface MarkedProcess {
  readonly pid: number;
  readonly mark: string;
}

const unmarked = new UnmarkedProcesses(systemClock);

/** All processes of the machine as /proc shows them, with their marks and users. */
export class ProcessScan {
  readonly #all = new Map<number, ProcessEntry>();
  readonly #byGroup = new Map<number, ProcessEntry[]>();
  readonly #byParent = new Map<number, ProcessEntry[]>();
  readonly #byMark = new Map<string, ProcessEntry[]>();
  readonly #marked = new Map<string, MarkedProcess[]>();
  readonly #users = new Map<number, number>();

  /** A step reads at most STEP_ITEMS processes. Without marks it reads a third of the files. */
  static *inSteps({ withMarks = true } = {}): Steps<ProcessScan> {
    const scan = new ProcessScan();
    let left = STEP_ITEMS;
    for (const pid of listProc()) {
      scan.#read(pid, withMarks);
      if (--left > 0) continue;
      left = STEP_ITEMS;
      yield;
    }
    if (withMarks) unmarked.keepOnly(scan.#all);
    return scan;
  }

  /** The same at once, for a process that has no other work or must end now. */
  static now(): ProcessScan {
    return runToEnd(ProcessScan.inSteps());
  }

  #read(pid: number, withMarks: boolean): void {
    const entry = readProcess(pid);
    if (!entry) return;
    this.#all.set(pid, entry);
    const { group, session, parent } = entry;
    add(this.#byGroup, group, entry);
    if (session !== group) add(this.#byGroup, session, entry);
    add(this.#byParent, parent, entry);
    if (!withMarks) return;
    const settled = unmarked.settledUser(entry);
    const user = settled ?? userOf(pid);
    if (user !== undefined) this.#users.set(pid, user);
    if (settled !== undefined) return;
    const marks = marksOf(pid);
    unmarked.note(entry, marks.size === 0 ? user : undefined);
    for (const [variable, mark] of marks) {
      add(this.#marked, variable, { pid, mark });
      if (variable === MARK_VARIABLE) add(this.#byMark, mark, entry);
    }
  }

  /** The processes of the group and session that this process leads, or led. */
  groupOf({ pid }: { readonly pid: number }): readonly ProcessEntry[] {
    return this.#byGroup.get(pid) ?? [];
  }

  /**
   * The processes of a task: those with its mark, those of its leader's group and session, and all
   * descendants. A group counts only if one of its processes carries the mark, or if this process
   * started its leader.
   */
  processesOf(leader: ProcessRecord | undefined, mark: string, isOwn = false): ProcessEntry[] {
    const found = new Map(this.#byMark.get(mark)?.map((each) => [each.pid, each]));
    const near = leader ? this.#near(leader) : [];
    if (isOwn || near.some(({ pid }) => found.has(pid))) {
      for (const each of near) found.set(each.pid, each);
    }
    // The loop also visits what it adds.
    for (const { pid } of found.values()) {
      for (const child of this.#byParent.get(pid) ?? []) found.set(child.pid, child);
    }
    return [...found.values()];
  }

  #near({ pid, startTime }: ProcessRecord): readonly ProcessEntry[] {
    // A session of another container has no leader here.
    if (pid <= 1) return [];
    // The id of an ended leader may belong to another group by now.
    const holder = this.#all.get(pid);
    if (holder !== undefined && holder.startTime !== startTime) return [];
    return this.groupOf({ pid });
  }

  /** The tasks of which processes with such a mark live. */
  markedTasks(isMark: (mark: string) => boolean): MarkedTask[] {
    const marked = [...this.#byMark].filter(([mark]) => isMark(mark));
    return marked.map(([mark, entries]) => {
      const leader = entries.find(({ pid, session }) => pid === session);
      const others = this.processesOf(leader, mark).filter(({ pid }) => pid !== leader?.pid);
      return { mark, leader, others };
    });
  }

  /** The processes that carry a mark in this variable. */
  marked(variable: string = MARK_VARIABLE): readonly MarkedProcess[] {
    return this.#marked.get(variable) ?? [];
  }

  /** The users of running tasks on this machine, of any worker; tasks cannot add any. */
  usersOfTasks(): { readonly user: number; readonly mark: string }[] {
    const own = process.getuid?.();
    const marks = new Map(this.marked().map(({ pid, mark }) => [pid, mark]));
    return this.marked(USER_VARIABLE)
      .filter(({ pid }) => this.#users.get(pid) === own)
      .map(({ pid, mark }) => ({ user: Number(mark), mark: marks.get(pid) ?? "" }));
  }

  /**
   * Processes of users without a running task: they left their task, and only their user shows it.
   */
  straysOf(users: ReadonlySet<number>): ProcessEntry[] {
    const lost = new Set(users);
    if (lost.size > 0) for (const { user } of this.usersOfTasks()) lost.delete(user);
    if (lost.size === 0) return [];
    return [...this.#all.values()].filter(({ pid }) => lost.has(this.#users.get(pid) ?? -1));
  }

  /** The users of all processes. */
  users(): Set<number> {
    return new Set(this.#users.values());
  }
}

const fresh = new FreshRun(() => runInTurns(() => ProcessScan.inSteps()));

/** A scan that begins after the call. All tasks of this worker share it. */
export function freshScan(): Promise<ProcessScan> {
  return fresh.get();
}

function add<Key, Item>(lists: Map<Key, Item[]>, key: Key, item: Item): void {
  const list = lists.get(key);
  if (list) list.push(item);
  else lists.set(key, [item]);
}

function listProc(): number[] {
  try {
    return readdirSync("/proc").map(Number).filter(Number.isInteger);
  } catch {
    return []; // A system without /proc: there is only the group.
  }
}

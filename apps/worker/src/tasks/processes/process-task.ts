import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { basename, dirname } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { openFileBeneath } from "@heddle/base/beneath";
import { handlesSignal } from "@heddle/base/process-alive";
import type { TaskEnd, TaskHandle, TaskUsage } from "../executors/executor.ts";
import type { OutputCopier } from "../executors/output-copier.ts";
import { freshScan, type ProcessScan } from "../executors/process-scan.ts";
import {
  killAllButLeader,
  memoryOf,
  type ProcessEntry,
  type ProcessRecord,
  readProcess,
  signalProcess,
} from "../executors/process-tree.ts";
import { signalFromExitStatus } from "../executors/signal-from-exit-status.ts";
import { watchedGroup } from "../executors/watched-group.ts";
import type { Cgroup } from "./cgroup.ts";

/** How often a task is checked that is not our child. */
const POLL_MS = 200;
/** Between two rounds of killing: a process that forked meanwhile is found in the next. */
const KILL_ROUND_MS = 20;
/** A wrapper that has not ended by then is killed; processes of its task may outlive it. */
const MAX_WRAPPER_MS = 8_000;
/** Processes that survive this, as in an uninterruptible read, are left behind. */
const MAX_KILL_MS = 10_000;
/** An exit status has three digits at most. */
const MAX_STATUS_BYTES = 16;

export interface ProcessTaskOptions {
  readonly record: ProcessRecord;
  readonly mark: string;
  readonly leaf: Cgroup | undefined;
  /** The wrapper's file for the exit status. */
  readonly statusFile: string;
  /** 0: none. */
  readonly memoryLimitBytes: number;
  /** Absent where an earlier process of this worker started it. */
  readonly child: ChildProcess | undefined;
  /** Its user, which only tasks of its job have. */
  readonly user: number | undefined;
  /** The copier of its output. */
  readonly copier: OutputCopier;
}

/** A task that runs as a group of processes, led by the wrapper. */
export class ProcessTask implements TaskHandle {
  readonly record: ProcessRecord;
  readonly exited: Promise<TaskEnd>;
  readonly #options: ProcessTaskOptions;
  #ended = false;

  constructor(options: ProcessTaskOptions) {
    this.#options = options;
    this.record = options.record;
    this.exited = this.#exited();
  }

  async signal(name: NodeJS.Signals, onlyCaught = false): Promise<number> {
    // The wrapper catches every signal for tasks without any effect.
    const targets = (await this.#members()).filter(({ pid }) => pid !== this.record.pid);
    const chosen = onlyCaught ? targets.filter(({ pid }) => handlesSignal(pid, name)) : targets;
    return chosen.filter(({ pid }) => signalProcess(pid, name)).length;
  }

  async hold(isHeld: boolean): Promise<void> {
    await this.signal(isHeld ? "SIGSTOP" : "SIGCONT");
  }

  async kill(): Promise<void> {
    const { leaf } = this.#options;
    const startMs = performance.now();
    for (;;) {
      leaf?.kill();
      const found = await this.#found();
      this.#kill(found);
      if (found.length === 0) break;
      const passedMs = performance.now() - startMs;
      if (passedMs > MAX_WRAPPER_MS && !this.#ended) signalProcess(this.record.pid, "SIGKILL");
      if (passedMs > MAX_KILL_MS) break;
      await delay(KILL_ROUND_MS);
    }
    leaf?.remove();
  }

  killNow(scan: ProcessScan): void {
    this.#options.leaf?.kill();
    this.#kill([...this.#membersIn(scan), ...this.#straysIn(scan)]);
  }

  #kill(found: readonly ProcessEntry[]): void {
    killAllButLeader(
      this.record.pid,
      found.map(({ pid }) => pid),
    );
    // Without /proc only the group can be reached.
    const { child } = this.#options;
    if (found.length === 0 && !this.#ended && child) signalProcess(-this.record.pid, "SIGKILL");
  }

  async usage(): Promise<TaskUsage> {
    const inLeaf = this.#inLeaf();
    const processes = inLeaf.length > 0 ? inLeaf : await watchedGroup(this.record);
    return {
      memoryBytes: memoryOf(processes, this.#options.memoryLimitBytes),
      processes: processes.length,
    };
  }

  async #members(): Promise<readonly ProcessEntry[]> {
    const inLeaf = this.#inLeaf();
    return inLeaf.length > 0 ? inLeaf : this.#membersIn(await freshScan());
  }

  #inLeaf(): ProcessEntry[] {
    return this.#options.leaf?.members().flatMap((pid) => readProcess(pid) ?? []) ?? [];
  }

  #membersIn(scan: ProcessScan): readonly ProcessEntry[] {
    const { mark, child } = this.#options;
    const inLeaf = this.#inLeaf();
    // A process that just started may not have entered its cgroup yet.
    return inLeaf.length > 0 ? inLeaf : scan.processesOf(this.record, mark, child !== undefined);
  }

  /**
   * A program may leave its session, its parents, its mark and, without cgroups, everything but its
   * user.
   */
  #straysIn(scan: ProcessScan): ProcessEntry[] {
    const { user } = this.#options;
    return user === undefined ? [] : scan.straysOf(new Set([user]));
  }

  async #found(): Promise<readonly ProcessEntry[]> {
    const scan = await freshScan();
    return [...this.#membersIn(scan), ...this.#straysIn(scan)];
  }

  async #exited(): Promise<TaskEnd> {
    const { child, statusFile, leaf, copier } = this.#options;
    const seen = child ? await childEnd(child) : await this.#gone();
    this.#ended = true;
    const outOfMemory = leaf?.ranOutOfMemory() ?? false;
    await this.kill();
    // Only then has the pipe no writer; the end is reported when the log is complete.
    await copier.drained();
    const words = await sizeOf(shellMessagesFile(statusFile));
    return { ...endOf(await readStatus(statusFile), seen, words), outOfMemory };
  }

  async #gone(): Promise<TaskEnd> {
    const { pid, startTime } = this.record;
    while (readProcess(pid)?.startTime === startTime) await delay(POLL_MS);
    return {};
  }
}

async function childEnd(child: ChildProcess): Promise<TaskEnd> {
  if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
  if (child.signalCode) return { signal: child.signalCode };
  return { exitCode: child.exitCode ?? 0 };
}

/** Shells print nothing about these signals: the program may have exited with that code itself. */
const UNTOLD: ReadonlySet<string> = new Set(["SIGINT", "SIGPIPE"]);

/**
 * A shell reports a signal by a status above 128, with which a program can exit too; only in the
 * first case it prints a message. `words` is the number of bytes of that message; undefined where
 * they were not kept.
 */
function endOf(status: number | undefined, seen: TaskEnd, words: number | undefined): TaskEnd {
  const code = status ?? seen.exitCode;
  if (code === undefined) return seen;
  const signal = signalFromExitStatus(code);
  return signal && (words !== 0 || UNTOLD.has(signal)) ? { signal } : { exitCode: code };
}

/** The file for messages of the wrapper's shell. */
export function shellMessagesFile(statusFile: string): string {
  return `${statusFile}.words`;
}

async function readStatus(path: string): Promise<number | undefined> {
  const bytes = Buffer.alloc(MAX_STATUS_BYTES);
  const file = await openFileBeneath(dirname(path), basename(path)).catch(() => undefined);
  try {
    const read = await file?.read(bytes, 0, MAX_STATUS_BYTES, 0);
    // Without a file the wrapper was killed with the rest.
    return read && Number(bytes.toString("latin1", 0, read.bytesRead).trim());
  } finally {
    await file?.close();
  }
}

/** Undefined for a task that an earlier release has started. */
async function sizeOf(path: string): Promise<number | undefined> {
  const file = await openFileBeneath(dirname(path), basename(path)).catch(() => undefined);
  try {
    return (await file?.stat())?.size;
  } finally {
    await file?.close();
  }
}

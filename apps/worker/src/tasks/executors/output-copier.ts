import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, constants, openSync, readSync } from "node:fs";
import { relative } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { resolvesWithin } from "@heddle/base/async/resolves-within";
import { openFileBeneath, openFileBeneathSync } from "@heddle/base/beneath";
import { OUTPUT_STREAMS } from "../../records/task-directory.ts";
import { LaunchError, type TaskLaunch } from "./executor.ts";
import { inOwnTurn } from "./own-turn.ts";
import { freshScan, type ProcessScan } from "./process-scan.ts";
import { COPIER_VARIABLE, signalProcess } from "./process-tree.ts";
import { openPipe, type PipeEnds } from "./unnamed-pipe.ts";

/**
 * Copies both pipes, each to its file, until their last writer closes them; copiers ignore signals
 * to their group. Output after a failed write, as on a full disk, is skipped and later marked: a
 * program with an unread pipe would block.
 */
const COPIER = [
  "trap '' HUP INT QUIT TERM USR1 USR2 ALRM PIPE TSTP TTIN TTOU XFSZ; mark=$1",
  "copy() {",
  `until cat; do sleep 1; until printf '\\n%s\\n' "$mark"; do`,
  // Where it has ended by itself no writer is left.
  "cat <&5 > /dev/null & sleep 1; kill -9 $!; wait $! && return; done; done",
  "}",
  "copy <&3 5<&3 >&4 3<&- 4>&- &",
  "exec 3<&- 4>&- 5<&0; copy; wait",
].join("\n");

const LOST_MARK =
  "[heddle: a part of this output could not be written to the worker's disk, and is lost]";
const LEFT_MARK =
  "\n[heddle: a process of this task that could not be ended still has its output open: what it writes from here on is not kept]\n";

/** The files of a task's output. */
type LogFiles = Pick<TaskLaunch, "root" | "stdout" | "stderr">;

const APPEND = constants.O_WRONLY | constants.O_CREAT | constants.O_APPEND;
/** The longest time to copy what a task has left in its pipes. */
const MAX_DRAIN_MS = 10_000;
const DRAIN_POLL_MS = 50;
/** The most bytes of one read of a pipe. */
const MAX_READ_BYTES = 64 * 1024;

/**
 * The ends of two pipes. A task writes to pipes because a program that opens `/dev/stdout` would
 * truncate a file. It could not open a socket, which Node's own pipes are.
 */
export class OutputPipes {
  readonly #readEnds: readonly number[];
  /** The task's streams. */
  readonly writeEnds: readonly [stdout: number, stderr: number];

  private constructor(out: PipeEnds, err: PipeEnds) {
    this.#readEnds = [out.read, err.read];
    this.writeEnds = [out.write, err.write];
  }

  /** Throws a LaunchError. */
  static open(): OutputPipes {
    let out: PipeEnds | undefined;
    try {
      out = openPipe();
      return new OutputPipes(out, openPipe());
    } catch (cause) {
      if (out) for (const end of [out.read, out.write]) closeSync(end);
      const message = `the pipes for the task's output could not be made: ${(cause as Error).message}`;
      throw new LaunchError("LaunchFailed", message, cause);
    }
  }

  /** The output so far, as text, by stream; a copier that starts later does not see it. */
  take(): string[] {
    return this.#readEnds.map(takeFrom);
  }

  /**
   * Starts the processes that copy the pipes to the task's files, and which outlive this one.
   * Rejects with a LaunchError.
   */
  async copyTo(launch: LogFiles, mark: string): Promise<OutputCopier> {
    const { root } = launch;
    const files = OUTPUT_STREAMS.map((name) =>
      openFileBeneathSync(root, relative(root, launch[name]), APPEND),
    );
    const [readOut, readErr] = this.#readEnds;
    const child = await inOwnTurn(async () => {
      const started = spawn("/bin/sh", ["-c", COPIER, "heddle-output", LOST_MARK], {
        cwd: "/",
        env: { PATH: process.env["PATH"], [COPIER_VARIABLE]: mark },
        detached: true,
        stdio: [readOut, files[0], "ignore", readErr, files[1]],
      });
      await once(started, "spawn");
      return started;
    })
      .catch((cause: Error) => {
        const message = `the system could not start what copies the task's output: ${cause.message}`;
        throw new LaunchError("LaunchFailed", message, cause);
      })
      .finally(() => files.forEach(closeSync));
    child.unref();
    return new OutputCopier(launch, mark, child);
  }

  /**
   * Call it once the task and the copier have their ends: the pipes then end with the last writer.
   */
  close(): void {
    for (const end of [...this.#readEnds, ...this.writeEnds]) closeSync(end);
  }
}

/** The processes that copy one task's output from its pipes to its files. */
export class OutputCopier {
  readonly #files: LogFiles;
  readonly #mark: string;
  /** Absent where an earlier process of this worker started it. */
  readonly #ended: Promise<boolean> | undefined;

  constructor(files: LogFiles, mark: string, child: ChildProcess | undefined) {
    this.#files = files;
    this.#mark = mark;
    // A killed copier may have a child process that still copies.
    this.#ended = child && once(child, "exit").then(([code]) => code === 0);
  }

  /**
   * The copier of a task that an earlier process of this worker started; there may be none left.
   */
  static find(files: LogFiles, mark: string): OutputCopier {
    return new OutputCopier(files, mark, undefined);
  }

  /**
   * Ends copiers of this worker's tasks except those in `known`: their pipes have no reader of
   * interest.
   */
  static sweep(scan: ProcessScan, prefix: string, known: ReadonlySet<string>): void {
    for (const { pid, mark } of scan.marked(COPIER_VARIABLE)) {
      if (!mark.startsWith(prefix) || known.has(mark.slice(prefix.length))) continue;
      signalProcess(pid, "SIGKILL");
    }
  }

  /**
   * Resolves when all output is in the files. Call it after the task's processes were killed. The
   * wait for one that could not be killed and has a pipe open is bounded, which the log shows.
   */
  async drained(timeoutMs: number = MAX_DRAIN_MS): Promise<void> {
    const giveUpAtMs = performance.now() + timeoutMs;
    const ended = this.#ended;
    if (ended && (await resolvesWithin(ended, timeoutMs)) && (await ended)) return;
    for (;;) {
      const copiers = (await freshScan()).marked(COPIER_VARIABLE);
      const left = copiers.filter(({ mark }) => mark === this.#mark);
      if (left.length === 0) return;
      if (performance.now() >= giveUpAtMs) return this.#giveUp(left);
      await delay(DRAIN_POLL_MS);
    }
  }

  async #giveUp(left: readonly { readonly pid: number }[]): Promise<void> {
    for (const { pid } of left) signalProcess(pid, "SIGKILL");
    // A full disk must not hide the task's end.
    await this.#reportLeft().catch(() => undefined);
  }

  async #reportLeft(): Promise<void> {
    const { root, stderr } = this.#files;
    const file = await openFileBeneath(root, relative(root, stderr), APPEND);
    try {
      await file.writeFile(LEFT_MARK);
    } finally {
      await file.close();
    }
  }
}

function takeFrom(readEnd: number): string {
  // This end would block on reads; another one of the same pipe does not.
  const end = openSync(`/proc/self/fd/${readEnd}`, constants.O_RDONLY | constants.O_NONBLOCK);
  const bytes = Buffer.alloc(MAX_READ_BYTES);
  try {
    return bytes.toString("utf8", 0, readSync(end, bytes));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EAGAIN") return "";
    throw error;
  } finally {
    closeSync(end);
  }
}

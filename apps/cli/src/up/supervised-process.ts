import { type ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { Backoff } from "@heddle/base/backoff";
import { AppError, ERROR_TABLE } from "@heddle/base/errors";
import { PARENT_PIPE_VARIABLE } from "@heddle/base/process/exit-with-parent";
import type { ProcessKind } from "@heddle/base/process/young-generation";
import { describeLogLine, type LogLine, parseLogLine } from "./log-line.ts";

/** One process of the cluster: its command and its name in the logs. */
export interface ProcessSpec {
  readonly name: string;
  readonly kind: ProcessKind;
  /** The program and its arguments. */
  readonly command: readonly [string, ...string[]];
  readonly env: NodeJS.ProcessEnv;
}

/** Events of a process. */
export interface ProcessEvents {
  /** A line of its output, raw and parsed. */
  line(spec: ProcessSpec, line: LogLine, raw: string): void;
  /** It exited unexpectedly, and restarts after the delay. */
  restarting(spec: ProcessSpec, why: string, delayMs: number): void;
  /** It crashed too often and stays down. */
  gaveUp(spec: ProcessSpec, why: string): void;
  /** It was removed from the cluster and exited for good. */
  left(spec: ProcessSpec, why: string): void;
}

/** Limits on the restarts of a crashing process. */
export interface RestartLimits {
  readonly baseMs: number;
  readonly maxMs: number;
  /** The process stays down after this many crashes within the window. */
  readonly maxCrashes: number;
  readonly windowMs: number;
}

export const RESTART_LIMITS: RestartLimits = {
  baseMs: 250,
  maxMs: 10_000,
  maxCrashes: 5,
  windowMs: 60_000,
};

/**
 * A child process that is restarted after a crash, with growing delays and a limit.
 *
 * - It leads its own process group: Ctrl-C reaches only the supervisor, which stops the children in
 * order, and a forced end includes its descendants.
 * - Its standard input is a pipe held open here: `exitWithParent` in the child sees it close.
 */
export class SupervisedProcess {
  readonly spec: ProcessSpec;
  /** Resolves at the first "ready", or when it has left; rejects if it crashed too often before. */
  readonly ready: Promise<void>;
  readonly #events: ProcessEvents;
  readonly #limits: RestartLimits;
  readonly #backoff: Backoff;
  readonly #ready = Promise.withResolvers<void>();
  #child: ChildProcess | undefined;
  #exited: Promise<void> = Promise.resolve();
  #restartTimer: NodeJS.Timeout | undefined;
  /** Times of the latest crashes, in monotonic milliseconds, oldest first. */
  #crashesAtMs: number[] = [];
  #lastComplaint = "";
  #stopping = false;
  #over = false;

  constructor(spec: ProcessSpec, events: ProcessEvents, limits: RestartLimits = RESTART_LIMITS) {
    this.spec = spec;
    this.#events = events;
    this.#limits = limits;
    this.#backoff = new Backoff(limits);
    this.ready = this.#ready.promise;
    this.ready.catch(() => {}); // `gaveUp` reports it as well, so awaiting it is optional.
  }

  /** The process's id while it runs. */
  get pid(): number | undefined {
    return this.#child?.pid;
  }

  /** True if it has left or crashed too often: it will not run again. */
  get isEnded(): boolean {
    return this.#over;
  }

  start(): void {
    const [program, ...args] = this.spec.command;
    const child = spawn(program, args, {
      detached: true,
      stdio: ["pipe", "pipe", "pipe"],
      env: { ...this.spec.env, [PARENT_PIPE_VARIABLE]: "stdin" },
    });
    this.#child = child;
    child.stdin?.on("error", () => {}); // The child may end before the pipe is closed here.
    for (const stream of [child.stdout, child.stderr]) {
      if (stream) createInterface({ input: stream }).on("line", (line) => this.#read(line));
    }
    this.#exited = new Promise((resolve) => {
      let over = false;
      const end = (how: string, code: number | null = null) => {
        if (over) return;
        over = true;
        this.#onExit(how, code);
        resolve();
      };
      child.once("error", (error) => end(`it could not be started: ${error.message}`));
      // Its child processes must not outlive it, nor hold its pipes open. "close" and not "exit" is
      // the end, because the last lines, which say why, come before it.
      child.once("exit", () => this.#killGroup(child));
      child.once("close", (code, signal) =>
        end(signal ? `it was killed by ${signal}` : `it exited with code ${code}`, code),
      );
    });
  }

  /** Sends SIGTERM, and after the grace SIGKILL to its group. Resolves when it is gone. */
  async stop(graceMs: number): Promise<void> {
    this.#stopping = true;
    clearTimeout(this.#restartTimer);
    const child = this.#child;
    if (!child) return;
    child.kill("SIGTERM");
    const timer = setTimeout(() => this.#killGroup(child), graceMs);
    await this.#exited;
    clearTimeout(timer);
  }

  /** Kills it and its descendants at once. */
  kill(): void {
    this.#stopping = true;
    clearTimeout(this.#restartTimer);
    if (this.#child) this.#killGroup(this.#child);
  }

  #killGroup(child: ChildProcess): void {
    if (child.pid === undefined) return;
    try {
      process.kill(-child.pid, "SIGKILL");
    } catch {
      // The group is already empty.
    }
  }

  #read(raw: string): void {
    const line = parseLogLine(raw);
    if (line.kind === "record" && line.message === "ready") {
      this.#backoff.reset();
      this.#ready.resolve();
    }
    if (isComplaint(line)) this.#lastComplaint = describeLogLine(line);
    this.#events.line(this.spec, line, raw);
  }

  #onExit(how: string, code: number | null): void {
    this.#child = undefined;
    if (this.#stopping) return;
    if (code === ERROR_TABLE.member_removed.exit) {
      this.#over = true;
      this.#ready.resolve();
      this.#events.left(this.spec, this.#lastComplaint || how);
      return;
    }
    const { windowMs, maxCrashes } = this.#limits;
    const nowMs = performance.now();
    this.#crashesAtMs = this.#crashesAtMs.filter((atMs) => nowMs - atMs < windowMs);
    this.#crashesAtMs.push(nowMs);
    const why = this.#lastComplaint ? `${how}; it last said: ${this.#lastComplaint}` : how;
    if (this.#crashesAtMs.length >= maxCrashes) {
      this.#over = true;
      const text = `${why} (${maxCrashes} crashes within ${windowMs / 1000} s; not restarted)`;
      this.#ready.reject(new AppError("unavailable", `${this.spec.name} does not start: ${text}`));
      this.#events.gaveUp(this.spec, text);
      return;
    }
    const delayMs = Math.round(this.#backoff.nextMs());
    this.#events.restarting(this.spec, why, delayMs);
    this.#restartTimer = setTimeout(() => this.start(), delayMs);
  }
}

/** A line that may explain a crash: an error record, or text that reads like one. */
function isComplaint(line: LogLine): boolean {
  return line.kind === "text"
    ? /^\S.*(error\b|fatal|fail|could not|cannot)/i.test(line.text) || /^\w*Error\b/.test(line.text)
    : line.level >= 50;
}

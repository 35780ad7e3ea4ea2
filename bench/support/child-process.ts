import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { createWriteStream, mkdirSync, type WriteStream } from "node:fs";
import { dirname } from "node:path";
import { createInterface } from "node:readline";
import { resolvesWithin } from "@heddle/base/async/resolves-within";
import { processStartTicks, processTree } from "./proc-files.ts";

interface ChildOptions {
  /** Shown in messages. */
  readonly name: string;
  readonly command: string;
  readonly args: readonly string[];
  /** Receives all output of the child. */
  readonly logFile: string;
  /** The one core it may run on. */
  readonly core?: number | undefined;
  readonly env?: Readonly<Record<string, string>> | undefined;
  readonly cwd?: string | undefined;
  /** Whether the child reads input lines. */
  readonly input?: boolean | undefined;
}

const killAfterMs = 10_000;
const running = new Set<Child>();
const canPin = spawnSync("taskset", ["--version"]).status === 0;

/** A process of a benchmark; it and all its descendants end with the benchmark. */
export class Child {
  readonly name: string;
  readonly pid: number;
  readonly lines: string[] = [];
  readonly #process: ChildProcess;
  readonly #log: WriteStream;
  readonly #logFile: string;
  readonly #waiting = new Set<(line: string | undefined) => void>();

  constructor(options: ChildOptions) {
    this.name = options.name;
    this.#logFile = options.logFile;
    mkdirSync(dirname(options.logFile), { recursive: true });
    this.#log = createWriteStream(options.logFile);
    const [command, args] = pinned(options);
    this.#process = spawn(command, args, {
      cwd: options.cwd,
      env: { ...process.env, ...options.env },
      stdio: [options.input ? "pipe" : "ignore", "pipe", "pipe"],
    });
    if (this.#process.pid === undefined) throw new Error(`cannot start ${command}`);
    this.pid = this.#process.pid;
    running.add(this);
    for (const stream of [this.#process.stdout!, this.#process.stderr!]) {
      createInterface({ input: stream }).on("line", (line) => this.#onLine(line));
    }
    this.#process.once("exit", () => this.#onExit());
  }

  get exited(): boolean {
    return this.#process.exitCode !== null || this.#process.signalCode !== null;
  }

  /** Resolves with the match of the first past or future line that the pattern matches. */
  async line(pattern: RegExp, timeoutMs: number): Promise<RegExpExecArray> {
    const deadline = Date.now() + timeoutMs;
    for (let next = 0; ; ) {
      for (; next < this.lines.length; next += 1) {
        const match = pattern.exec(this.lines[next]!);
        if (match) return match;
      }
      if (this.exited || Date.now() > deadline) throw this.#silent(pattern);
      await this.#nextLine(deadline - Date.now());
    }
  }

  /** Writes a line to its input. */
  writeLine(line: string): void {
    this.#process.stdin?.write(`${line}\n`);
  }

  /** Resolves when the process has ended by itself. Rejects when its exit code is not 0. */
  async ended(): Promise<void> {
    if (!this.exited) await new Promise((resolve) => this.#process.once("close", resolve));
    if (this.#process.exitCode === 0) return;
    throw new Error(`${this.name} failed; its output is in ${this.#logFile}`);
  }

  /** Asks the process to end, then kills the rest of it and of its descendants. */
  async stop(): Promise<void> {
    const tree = processTree(this.pid).map((pid) => ({ pid, start: processStartTicks(pid) }));
    if (!this.exited) {
      const closed = new Promise((resolve) => this.#process.once("exit", resolve));
      this.#process.kill("SIGTERM");
      await resolvesWithin(closed, killAfterMs);
    }
    killSurvivors(tree);
    running.delete(this);
  }

  #nextLine(timeoutMs: number): Promise<void> {
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer);
        this.#waiting.delete(done);
        resolve();
      };
      const timer = setTimeout(done, Math.max(1, timeoutMs));
      this.#waiting.add(done);
    });
  }

  #onLine(line: string): void {
    this.#log.write(`${line}\n`);
    this.lines.push(line);
    for (const wake of [...this.#waiting]) wake(line);
  }

  #onExit(): void {
    for (const wake of [...this.#waiting]) wake(undefined);
  }

  #silent(pattern: RegExp): Error {
    const tail = this.lines.slice(-5).join("\n  ");
    const what = this.exited ? "ended before it" : "did not";
    return new Error(
      `${this.name} ${what} print ${pattern}; see ${this.#logFile}. Its last lines:\n  ${tail}`,
    );
  }
}

/** Ends every process that the benchmark started. */
async function stopAll(): Promise<void> {
  await Promise.all([...running].map((child) => child.stop()));
}

/** Runs a benchmark's body and ends its processes in any case. */
export async function withCleanup(body: () => Promise<void>): Promise<void> {
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    process.once(signal, () => void stopAll().then(() => process.exit(130)));
  }
  try {
    await body();
  } finally {
    await stopAll();
  }
}

function pinned({ command, args, core }: ChildOptions): [string, string[]] {
  if (core === undefined || !canPin) return [command, [...args]];
  return ["taskset", ["-c", String(core), command, ...args]];
}

function killSurvivors(tree: readonly { pid: number; start: string | undefined }[]): void {
  for (const { pid, start } of tree) {
    if (start !== undefined && processStartTicks(pid) === start) process.kill(pid, "SIGKILL");
  }
}

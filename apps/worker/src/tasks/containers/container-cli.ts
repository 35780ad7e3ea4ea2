import { type ChildProcess, spawn } from "node:child_process";
import { tmpdir } from "node:os";
import { LimitedQueue } from "@heddle/base/async/limited-queue";
import { inOwnTurn } from "../executors/own-turn.ts";

/** The rest of a longer answer is skipped. */
const MAX_OUTPUT_BYTES = 256 * 1024;
/** For a CLI that has ended while something that it started still holds its output. */
const DRAIN_MS = 500;

/** Calls of the CLI at a time, pulls of images among them, and calls that may wait. */
const MAX_CALLS = 16;
const MAX_PULLS = 3;
const MAX_WAITING = 4_096;

interface CliOptions {
  readonly timeoutMs: number;
  /** In addition to this worker's own. */
  readonly environment?: Readonly<Record<string, string>> | undefined;
  readonly signal?: AbortSignal | undefined;
  /**
   * Where it and its children may leave files, as podman's monitor does; absent: the temporary
   * folder.
   */
  readonly directory?: string | undefined;
  /** Descriptors of files that replace its output, which is then not captured. */
  readonly output?: readonly [stdout: number, stderr: number] | undefined;
}

/** A call of a container CLI that failed, or that timed out. */
export class CliError extends Error {
  /** Absent where it was killed: its effect is unknown. */
  readonly code: number | undefined;

  constructor(message: string, code?: number) {
    super(message);
    this.code = code;
  }
}

/** One of podman, docker and nerdctl; each call is a process with a time limit. */
export class ContainerCli {
  readonly name: string;
  readonly #calls = this.#limited(MAX_CALLS - MAX_PULLS);
  readonly #pulls = this.#limited(MAX_PULLS);

  constructor(name: string) {
    this.name = name;
  }

  #limited(running: number): LimitedQueue {
    const message = () => `${MAX_WAITING} calls of ${this.name} wait on this worker already`;
    return new LimitedQueue({ running, waiting: MAX_WAITING }, () => new CliError(message()));
  }

  /** Its output, trimmed. Rejects with a CliError. */
  run(args: readonly string[], options: CliOptions): Promise<string> {
    return this.#inTurn(this.#calls, args, options);
  }

  /** The same for pulls, which may take long. */
  async pull(image: string, options: CliOptions): Promise<void> {
    await this.#inTurn(this.#pulls, ["pull", "--quiet", image], options);
  }

  async #inTurn(
    queue: LimitedQueue,
    args: readonly string[],
    options: CliOptions,
  ): Promise<string> {
    const { signal } = options;
    try {
      return await queue.run(() => inOwnTurn(() => this.#call(args, options)), signal);
    } catch (error) {
      const isCalledOff = signal?.aborted && error === signal.reason;
      throw isCalledOff ? new CliError(this.#words(args, "was cancelled")) : error;
    }
  }

  #call(args: readonly string[], options: CliOptions): Promise<string> {
    const { environment, output, signal } = options;
    // A process group of its own: its children are killed with it.
    const child = spawn(this.name, [...args], {
      detached: true,
      cwd: options.directory ?? tmpdir(),
      env: { ...process.env, ...environment },
      stdio: ["ignore", output?.[0] ?? "pipe", output?.[1] ?? "pipe"],
    });
    const captured = { stdout: gather(child.stdout), stderr: gather(child.stderr) };
    return new Promise((fulfil, reject) => {
      const giveUp = (why: string) => {
        settle();
        killGroup(child);
        reject(new CliError(why));
      };
      const late = `did not answer within ${options.timeoutMs / 1_000} s`;
      const timer = setTimeout(() => giveUp(this.#words(args, late)), options.timeoutMs);
      const onAbort = () => giveUp(this.#words(args, "was cancelled"));
      const settle = () => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", onAbort);
        child.stdout?.destroy();
        child.stderr?.destroy();
      };
      signal?.addEventListener("abort", onAbort);
      if (signal?.aborted) onAbort();
      child.once("error", (error) => giveUp(error.message));
      const finish = (code: number | null, how: string | null) => {
        settle();
        if (code === 0) return fulfil(captured.stdout().trim());
        const ended = how ? `was ended by ${how}` : `ended with code ${code}`;
        const words = lastLine(captured.stderr()) || this.#words(args, ended);
        reject(new CliError(words, code ?? undefined));
      };
      child.once("close", finish);
      child.once("exit", (code, how) => setTimeout(finish, DRAIN_MS, code, how).unref());
    });
  }

  #words(args: readonly string[], what: string): string {
    return `\`${this.name} ${args[0]}\` ${what}`;
  }
}

/** The last line that is not empty, without the prefix of every engine. */
export function lastLine(text: string): string {
  return (text.trim().split("\n").at(-1) ?? "").replace(/^Error: /, "").slice(0, 2_000);
}

function gather(stream: NodeJS.ReadableStream | null): () => string {
  const pieces: Buffer[] = [];
  let size = 0;
  stream?.on("data", (piece: Buffer) => {
    if (size < MAX_OUTPUT_BYTES) pieces.push(piece);
    size += piece.byteLength;
  });
  return () => Buffer.concat(pieces).toString("utf8");
}

function killGroup({ pid }: ChildProcess): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, "SIGKILL");
  } catch {
    // It ended meanwhile.
  }
}

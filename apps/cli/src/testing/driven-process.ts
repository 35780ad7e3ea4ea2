import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { isProcessAlive } from "@heddle/base/process-alive";
import { eventually } from "@heddle/base/testing/eventually";

/** The variables taken from this process's environment; the last two make starts cheap. */
const INHERITED = ["PATH", "HOME", "NODE_COMPILE_CACHE", "HEDDLE_WAL_SEGMENT_MIB"] as const;

/** A process under test: its output so far, and its end. */
export class DrivenProcess {
  stdout = "";
  stderr = "";
  readonly child: ChildProcess;
  readonly #ended: Promise<unknown[]>;

  /** `user`: runs as another user and group; needs root. */
  constructor(
    command: readonly [string, ...string[]],
    env: NodeJS.ProcessEnv = {},
    user?: number | undefined,
  ) {
    const [program, ...args] = command;
    const inherited = Object.fromEntries(INHERITED.map((name) => [name, process.env[name]]));
    this.child = spawn(program, args, {
      ...(user !== undefined && { uid: user, gid: user }),
      env: { ...inherited, ...env },
      stdio: ["ignore", "pipe", "pipe"],
    });
    this.child.stdout?.on("data", (chunk) => {
      this.stdout += chunk;
    });
    this.child.stderr?.on("data", (chunk) => {
      this.stderr += chunk;
    });
    this.#ended = once(this.child, "close");
  }

  /** The exit code, or the name of the signal that ended it. */
  async end(): Promise<number | string> {
    const [code, signal] = (await this.#ended) as [number | null, string | null];
    return code ?? signal ?? "unknown";
  }

  /** Resolves when the output matches; rejects, with the output, if the process ends before. */
  async printed(pattern: RegExp, withinMs = Infinity): Promise<RegExpExecArray> {
    const giveUpAtMs = performance.now() + withinMs;
    for (;;) {
      const found = pattern.exec(this.stdout) ?? pattern.exec(this.stderr);
      if (found) return found;
      if (this.child.exitCode !== null || this.child.signalCode !== null) {
        throw new Error(`it ended without ${pattern}: ${this.stdout}${this.stderr}`);
      }
      if (performance.now() > giveUpAtMs) {
        throw new Error(`${withinMs} ms without ${pattern}: ${this.stdout}${this.stderr}`);
      }
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
}

/** Resolves when none of the processes runs; rejects after the time. */
export function allGone(pids: readonly number[], withinMs?: number): Promise<void> {
  const what = () => `no process of ${pids.filter(isProcessAlive)} runs`;
  return eventually(() => !pids.some(isProcessAlive), what, withinMs);
}

import { spawn } from "node:child_process";

/** How one of the machine's own tools ended. */
export interface ToolResult {
  /** The exit code; undefined where the tool is not installed. */
  readonly exitCode: number | undefined;
  readonly stdout: string;
  readonly stderr: string;
}

/** What a tool is run with. */
export interface ToolOptions {
  readonly cwd: string;
  readonly env: NodeJS.ProcessEnv;
  readonly signal: AbortSignal;
  /** Receives the output as it comes. */
  readonly onOutput?: (text: string) => void;
}

/** Runs a program of the machine; rejects on abort. */
export type ToolRunner = (command: readonly string[], options: ToolOptions) => Promise<ToolResult>;

/** Kept of each output; what tools say when they fail is at its end. */
const MAX_OUTPUT_CHARACTERS = 64 * 1024;
/** A package of tens of gigabytes over a slow line; anything longer hangs. */
const TOOL_TIMEOUT_MS = 6 * 60 * 60 * 1000;

/** The ToolRunner of production: a child process without a shell and without input. */
export const runTool: ToolRunner = (command, { cwd, env, signal, onOutput }) =>
  new Promise((resolve, reject) => {
    const [program = "", ...args] = command;
    const timeout = AbortSignal.timeout(TOOL_TIMEOUT_MS);
    const child = spawn(program, args, {
      cwd,
      env,
      stdio: ["ignore", "pipe", "pipe"],
      signal: AbortSignal.any([signal, timeout]),
      // On Windows npm and pip are command scripts, which only a shell can start; the arguments are
      // checked names, versions and paths of our own.
      shell: process.platform === "win32",
    });
    const output = { stdout: "", stderr: "" };
    for (const name of ["stdout", "stderr"] as const) {
      child[name].setEncoding("utf8").on("data", (text: string) => {
        output[name] = (output[name] + text).slice(-MAX_OUTPUT_CHARACTERS);
        onOutput?.(text);
      });
    }
    child.once("error", (error: NodeJS.ErrnoException) => {
      if (error.code === "ENOENT") resolve({ exitCode: undefined, ...output });
      else reject(error);
    });
    child.once("close", (exitCode) => resolve({ exitCode: exitCode ?? 1, ...output }));
  });

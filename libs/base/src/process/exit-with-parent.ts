import { endProcess } from "./end-process.ts";

/** A supervisor sets this to `stdin` if the child's standard input is a pipe that it keeps open. */
export const PARENT_PIPE_VARIABLE = "HEDDLE_PARENT_PIPE";

/** The time for an orderly shutdown after the parent's end; then the process exits. */
const ORDERLY_END_MS = 5_000;

let isSupervised = false;

/** The environment for another program in this very process, with its standard input. */
export function ownEnvironment(): NodeJS.ProcessEnv {
  return { ...process.env, ...(isSupervised && { [PARENT_PIPE_VARIABLE]: "stdin" }) };
}

/**
 * Sends this process SIGTERM when its parent ends for any reason, even by SIGKILL: the operating
 * system closes the parent's end of the pipe. A shutdown handler that hangs is cut short. Does
 * nothing for a process without a supervisor.
 */
export function exitWithParent(): void {
  if (process.connected) {
    process.once("disconnect", end);
    process.channel?.unref(); // Watching the parent must not be what keeps this process alive.
  }
  isSupervised = process.env[PARENT_PIPE_VARIABLE] === "stdin";
  // The children of this process have another standard input.
  delete process.env[PARENT_PIPE_VARIABLE];
  if (!isSupervised) return;
  process.stdin.once("end", end).once("error", end).resume();
  process.stdin.unref();
}

function end(): void {
  setTimeout(() => void endProcess(1), ORDERLY_END_MS).unref();
  process.kill(process.pid, "SIGTERM");
}

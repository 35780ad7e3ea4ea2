import { endProcess } from "./end-process.ts";

/** A supervisor sets this to `stdin` where the child's standard input is a pipe it holds open. */
export const PARENT_PIPE_VARIABLE = "HEDDLE_PARENT_PIPE";

/** What is left to an orderly end once the parent is gone; past it the process just exits. */
const ORDERLY_END_MS = 5_000;

let isSupervised = false;

/** What the environment must say for another program in this very process, with its standard input. */
export function ownEnvironment(): NodeJS.ProcessEnv {
  return { ...process.env, ...(isSupervised && { [PARENT_PIPE_VARIABLE]: "stdin" }) };
}

/**
 * Ends this process when the one that started it is gone, however it went: a killed parent cannot
 * tell its children, but the operating system closes its end of their pipes. The end is a SIGTERM to
 * ourselves, so that the process's own handler runs; a handler that hangs is cut short. Does nothing
 * where no supervisor asked for it, so a process started by hand lives on its own.
 */
export function exitWithParent(): void {
  if (process.connected) {
    process.once("disconnect", end);
    process.channel?.unref(); // Watching the parent must not be what keeps this process alive.
  }
  isSupervised = process.env[PARENT_PIPE_VARIABLE] === "stdin";
  // What this process starts has another standard input.
  delete process.env[PARENT_PIPE_VARIABLE];
  if (!isSupervised) return;
  process.stdin.once("end", end).once("error", end).resume();
  process.stdin.unref();
}

function end(): void {
  setTimeout(() => void endProcess(1), ORDERLY_END_MS).unref();
  process.kill(process.pid, "SIGTERM");
}

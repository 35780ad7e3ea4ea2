import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { AppError, toAppError } from "@heddle/base/errors";
import { FAILURE_PREFIX } from "@heddle/contracts/trainer/exit-codes";
import { PluginError, pluginError } from "../plans/plugin/plugin-error.ts";
import { exitCodeOf } from "../trainer-errors.ts";

/** With which Node ends a process that waits for a promise that nothing can settle any more. */
const NOTHING_TO_WAIT_FOR = 13;

/** Whose code may run in this process beside our own; known once the orders are read. */
let plugins: readonly string[] = [];
let isOver = false;

/**
 * Sees to it that a trainer's process ends with words of ours, whatever a plugin does: a
 * `process.exit(0)` of its is no success, and what it throws where nobody waits is told.
 */
export function installExitHandlers(): void {
  process.on("uncaughtException", (error: unknown) => exitWithError(blamed(error)));
  process.on("exit", (code) => {
    if (isOver) return;
    const error = endedEarly(code);
    process.stderr.write(`${FAILURE_PREFIX}${error.code}): ${error.message}\n`);
    // What would pass for the task's own end, and nothing to wait for any more; a crash keeps its code.
    if (code === 0 || code === NOTHING_TO_WAIT_FOR) process.exitCode = exitCodeOf(error);
  });
}

/** The files of plugins that are about to be loaded. */
export function expectPlugins(files: readonly string[]): void {
  plugins = files;
}

/** Ends the process with a code of ours. */
export function end(code: number): never {
  isOver = true;
  process.exit(code);
}

/** Says why on standard error, in its last line, and ends the process with the code for it. */
export function exitWithError(error: unknown): never {
  const { code, message } = toAppError(error);
  const thrown = error instanceof PluginError ? error.cause : error;
  // Before the message, since the last line is what the job's failure tells.
  if (thrown instanceof Error && !(thrown instanceof AppError)) {
    process.stderr.write(`${thrown.stack}\n`);
  }
  const [line = ""] = message.split("\n");
  process.stderr.write(`${FAILURE_PREFIX}${code}): ${line}\n`);
  return end(exitCodeOf(error));
}

/** What nobody waited for, with the plugin through whose code it came. */
function blamed(error: unknown): unknown {
  const stack = error instanceof Error ? (error.stack ?? "") : "";
  const whose = plugins.find((file) => stack.includes(pathToFileURL(resolve(file)).href));
  return whose === undefined ? error : pluginError(`the plugin ${whose}`, error);
}

function endedEarly(code: number): AppError {
  const what = `the process ended with exit code ${code} before its task was done`;
  if (plugins.length === 0) return new AppError("server_error", what);
  const why = `a plugin must not end it, nor wait for what never comes (${plugins.join(", ")})`;
  return new PluginError(`${what}: ${why}`);
}

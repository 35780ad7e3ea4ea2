import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { AppError, toAppError } from "@heddle/base/errors";
import { FAILURE_PREFIX } from "@heddle/contracts/trainer/exit-codes";
import type { PluginEntry } from "@heddle/contracts/trainer/plugin-entry";
import { PluginError, pluginError } from "../plans/plugin/plugin-error.ts";
import { exitCodeOf } from "../trainer-errors.ts";

/** Node's exit code for a process that awaits a promise that can never settle. */
const NOTHING_TO_WAIT_FOR = 13;

/** The plugins whose code may run in this process; known once the orders are read. */
let plugins: readonly PluginEntry[] = [];
let isEnded = false;

/**
 * Makes the last line of a trainer's process explain its end, whatever a plugin does. A plugin's
 * `process.exit(0)` is not a success, and unhandled errors are reported.
 */
export function installExitHandlers(): void {
  process.on("uncaughtException", (error: unknown) => exitWithError(attributedError(error)));
  process.on("exit", (code) => {
    if (isEnded) return;
    const error = endedEarly(code);
    process.stderr.write(`${FAILURE_PREFIX}${error.code}): ${error.message}\n`);
    // An exit code of success, or of an empty event loop, is replaced; a crash keeps its code.
    if (code === 0 || code === NOTHING_TO_WAIT_FOR) process.exitCode = exitCodeOf(error);
  });
}

/** The plugins that are about to be loaded. */
export function expectPlugins(entries: readonly PluginEntry[]): void {
  plugins = entries;
}

/** Ends the process with this code. */
export function end(code: number): never {
  isEnded = true;
  process.exit(code);
}

/**
 * Prints the reason as the last line of standard error, and ends the process with the matching
 * code.
 */
export function exitWithError(error: unknown): never {
  const { code, message } = toAppError(error);
  const thrown = error instanceof PluginError ? error.cause : error;
  // Before the message, since the job's failure shows the last line.
  if (thrown instanceof Error && !(thrown instanceof AppError)) {
    process.stderr.write(`${thrown.stack}\n`);
  }
  const [line = ""] = message.split("\n");
  process.stderr.write(`${FAILURE_PREFIX}${code}): ${line}\n`);
  return end(exitCodeOf(error));
}

/** An unhandled error, attributed to the plugin in its stack. */
function attributedError(error: unknown): unknown {
  const stack = error instanceof Error ? (error.stack ?? "") : "";
  const plugin = plugins.find(({ from }) => stack.includes(pathToFileURL(resolve(from)).href));
  return plugin === undefined ? error : pluginError(`the plugin ${plugin.from}`, error);
}

function endedEarly(code: number): AppError {
  const what = `the process ended with exit code ${code} before its task was done`;
  if (plugins.length === 0) return new AppError("server_error", what);
  const why = `a plugin must not end it, nor wait for what never comes (${plugins.map(({ from }) => from).join(", ")})`;
  return new PluginError(`${what}: ${why}`);
}

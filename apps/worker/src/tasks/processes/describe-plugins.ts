import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { AppError } from "@heddle/base/errors";
import type { PluginEntry } from "@heddle/contracts/trainer/plugin-entry";
import { type PluginNames, pluginNamesSchema } from "@heddle/contracts/trainer/plugin-names";
import { trainerProgram } from "./trainer-program.ts";

/** The names of a worker without plugins. */
export const NO_PLUGINS: PluginNames = {
  algorithms: [],
  environments: [],
  schemas: {},
  unchecked: [],
};

/** The worker's start waits for it. */
const DESCRIBE_MS = 30_000;
/** Schemas are 64 KiB at most; the rest is what plugins print to standard error. */
const MAX_OUTPUT = 16 * 2 ** 20;
const run = promisify(execFile);

/**
 * Reads what these plugins add from a process of the trainer: their code never runs in the worker's
 * own. Rejects with an AppError `invalid_value` that names the unusable file and the reason.
 */
export async function describePlugins(
  entries: readonly PluginEntry[],
  limitMs = DESCRIBE_MS,
): Promise<PluginNames> {
  if (entries.length === 0) return NO_PLUGINS;
  const files = entries.map(({ from }) => from);
  const program = trainerProgram("plans/plugin/plugin-names-main");
  // A plugin that never returns and ignores SIGTERM must not block the worker's start.
  const options = { timeout: limitMs, killSignal: "SIGKILL", maxBuffer: MAX_OUTPUT } as const;
  const running = run(process.execPath, [program], options);
  // Settings of plugins are nothing for other users of this machine to see.
  running.child.stdin?.on("error", () => undefined).end(JSON.stringify(entries));
  const output = await running.catch((cause: unknown) => {
    throw describeFault(files, cause, limitMs);
  });
  try {
    return pluginNamesSchema.parse(JSON.parse(output.stdout));
  } catch (cause) {
    const what = `what the plugins ${files.join(", ")} have could not be read`;
    const message = `${what}: a plugin must not end its process, nor write to descriptors of it`;
    throw new AppError("invalid_value", message, { cause });
  }
}

function describeFault(files: readonly string[], cause: unknown, limitMs: number): AppError {
  const { stderr = "", killed } = cause as { readonly stderr?: string; readonly killed?: boolean };
  const bounds = `longer than ${limitMs} ms, or printed more than ${MAX_OUTPUT} bytes`;
  const late = `describing the plugins ${files.join(", ")} took ${bounds}`;
  const why = killed ? late : stderr.trim().split("\n").at(-1);
  const message = why || `plugins cannot be read: ${String(cause)}`;
  return new AppError("invalid_value", message, { cause });
}

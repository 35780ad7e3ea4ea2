import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { AppError } from "@heddle/base/errors";

/** What plugins add to what a worker can run. */
export interface PluginNames {
  readonly algorithms: readonly string[];
  readonly environments: readonly string[];
  /** By algorithm, as JSON: the schemas that masters check configs by. */
  readonly schemas: Readonly<Record<string, string>>;
  /** Algorithms whose configs are checked by their trainers alone, since their schemas are too large. */
  readonly unchecked: readonly string[];
}

/** Of a worker without plugins. */
export const NO_PLUGINS: PluginNames = {
  algorithms: [],
  environments: [],
  schemas: {},
  unchecked: [],
};

const DESCRIBE_MS = 60_000;
const run = promisify(execFile);

/**
 * Asks a trainer's process what is in these plugins: their code never runs in the worker's own.
 * Rejects with an AppError `invalid_value` that says which file cannot be used and why.
 */
export async function describePlugins(files: readonly string[]): Promise<PluginNames> {
  if (files.length === 0) return NO_PLUGINS;
  const program = fileURLToPath(
    new URL(`./plugin-names${import.meta.url.slice(-3)}`, import.meta.url),
  );
  try {
    const { stdout } = await run(process.execPath, [program, ...files], { timeout: DESCRIBE_MS });
    // A plugin may print lines of its own before.
    return JSON.parse(stdout.trimEnd().split("\n").at(-1) ?? "") as PluginNames;
  } catch (cause) {
    const { stderr = "", killed } = cause as {
      readonly stderr?: string;
      readonly killed?: boolean;
    };
    const late = `describing the plugins ${files.join(", ")} took longer than ${DESCRIBE_MS} ms`;
    const why = killed ? late : stderr.trim().split("\n").at(-1);
    throw new AppError("invalid_value", why || `plugins cannot be read: ${String(cause)}`, {
      cause,
    });
  }
}

import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type ParseArgsOptionsConfig, parseArgs } from "node:util";

export const repositoryRoot = fileURLToPath(new URL("../..", import.meta.url));

/** Peers, logs and data directories of the benchmarks; git ignores it. */
export const benchFolder = join(repositoryRoot, ".bench");

export type Options = Readonly<Record<string, string | undefined>>;

/**
 * Reads `--name value` options; each benchmark has `--json FILE` and `--record NAME`. Ends the process
 * with the usage text on `--help` or a wrong one.
 */
export function readOptions(usage: string, names: readonly string[]): Options {
  const usageText = `usage: ${usage} [--json FILE] [--record NAME]`;
  const options: ParseArgsOptionsConfig = {};
  for (const name of [...names, "json", "record"]) options[name] = { type: "string" };
  if (process.argv.includes("--help")) {
    console.log(usageText);
    process.exit(0);
  }
  try {
    return parseArgs({ options }).values as Options;
  } catch (error) {
    console.error(`${error instanceof Error ? error.message : error}\n${usageText}`);
    process.exit(2);
  }
}

export function numberList(text: string): readonly number[] {
  return text.split(",").map(Number);
}

import { mkdirSync, writeFileSync } from "node:fs";
import { cpus, totalmem } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { type ParseArgsOptionsConfig, parseArgs } from "node:util";

export const repositoryRoot = fileURLToPath(new URL("../..", import.meta.url));

/** Peers, logs and data directories of the benchmarks; git ignores it. */
export const benchFolder = join(repositoryRoot, ".bench");

type Options = Readonly<Record<string, string | undefined>>;

/** Reads `--name value` options. Ends the process with the usage text on `--help` or a wrong one. */
export function readOptions(usage: string, names: readonly string[]): Options {
  const options: ParseArgsOptionsConfig = {};
  for (const name of names) options[name] = { type: "string" };
  if (process.argv.includes("--help")) {
    console.log(`usage: ${usage}`);
    process.exit(0);
  }
  try {
    return parseArgs({ options }).values as Options;
  } catch (error) {
    console.error(`${error instanceof Error ? error.message : error}\nusage: ${usage}`);
    process.exit(2);
  }
}

export function numberList(text: string): readonly number[] {
  return text.split(",").map(Number);
}

/** Writes the figures of a run with what they were taken on, where a file was asked for. */
export function writeReport(file: string | undefined, report: object): void {
  if (file === undefined) return;
  mkdirSync(dirname(file), { recursive: true });
  const machine = {
    cpu: cpus()[0]?.model ?? "unknown",
    cores: cpus().length,
    memoryGiB: Math.round(totalmem() / 2 ** 30),
    platform: `${process.platform}-${process.arch}`,
    node: process.version,
  };
  const full = { takenAt: new Date().toISOString(), machine, ...report };
  writeFileSync(file, `${JSON.stringify(full, undefined, 2)}\n`);
  console.log(`\nThe figures are in ${file}.`);
}

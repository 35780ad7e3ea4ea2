import { execFileSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { cpus, loadavg, totalmem } from "node:os";
import { dirname, join } from "node:path";
import { z } from "zod";
import { type Options, repositoryRoot } from "./command-line.ts";
import { printed } from "./table.ts";

const cell = z.union([z.string(), z.number()]);
const machineSchema = z.strictObject({
  cpu: z.string().min(1),
  cores: z.int().positive(),
  memoryGiB: z.int().positive(),
  node: z.string().regex(/^v\d+/),
});

/** One run of a benchmark as bench/results keeps it; docs/benchmarks.md is made from these. */
export const benchResultSchema = z
  .strictObject({
    /** The NAME of `npm run bench:NAME`. */
    benchmark: z.string().min(1),
    takenAt: z.string().regex(/^\d{4}-\d\d-\d\d/),
    command: z.string().min(1),
    machine: machineSchema,
    /** What else ran on the machine. */
    load: z.string().min(1),
    commit: z.string().optional(),
    /** True where the figures are older than such files: copied from the page. */
    transcribed: z.boolean().optional(),
    /** Titles and columns name the units; a peer's figures are of the same run. */
    tables: z.array(
      z
        .strictObject({
          title: z.string(),
          columns: z.array(z.string()),
          rows: z.array(z.array(cell)),
        })
        .refine(({ columns, rows }) => rows.every((row) => row.length === columns.length), {
          message: "each row has a cell for each column",
        }),
    ),
    bars: z.array(z.strictObject({ bar: z.string(), measured: z.string(), pass: z.boolean() })),
  })
  .refine(({ tables, bars }) => tables.length + bars.length > 0, {
    message: "a result has figures",
  });

export type BenchResult = z.output<typeof benchResultSchema>;

const loadAtStart = loadavg()[0] ?? 0;

/**
 * Ends a benchmark: `--json FILE` gets all figures, `--record NAME` puts the printed tables and bars
 * into bench/results/NAME.json.
 */
export function writeReport(options: Options, benchmark: string, figures: object): void {
  const result = benchResultSchema.parse({ ...runOf(benchmark), ...printed });
  if (options["json"]) writeJson(options["json"], { ...result, figures });
  if (!options["record"]) return;
  writeJson(join(repositoryRoot, "bench/results", `${options["record"]}.json`), result);
  console.log("`npm run docs` brings them into docs/benchmarks.md.");
}

function runOf(benchmark: string): Omit<BenchResult, "tables" | "bars"> {
  return {
    benchmark,
    takenAt: new Date().toISOString(),
    command: [`npm run bench:${benchmark}`, "--", ...measuringArguments()].join(" "),
    machine: {
      cpu: cpus()[0]?.model ?? "unknown",
      cores: cpus().length,
      memoryGiB: Math.round(totalmem() / 2 ** 30),
      node: process.version,
    },
    load: `load average ${loadAtStart.toFixed(1)} at the start`,
    commit: commit(),
  };
}

/** Without where the figures go. */
function measuringArguments(): string[] {
  const isOutput = (argument?: string) => argument === "--json" || argument === "--record";
  return process.argv
    .slice(2)
    .filter((argument, at, all) => !isOutput(argument) && !isOutput(all[at - 1]));
}

/** Undefined outside of a git checkout; recorded results are no change of what is measured. */
function commit(): string | undefined {
  const git = (...args: string[]) =>
    execFileSync("git", args, {
      cwd: repositoryRoot,
      encoding: "utf8",
      stdio: ["ignore", "pipe", "ignore"],
    }).trim();
  try {
    const changes = git("status", "--porcelain", "--", "apps", "libs", "bench", ":!bench/results");
    return `${git("rev-parse", "--short=8", "HEAD")}${changes === "" ? "" : "-dirty"}`;
  } catch {
    return undefined;
  }
}

function writeJson(file: string, value: object): void {
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, `${JSON.stringify(value, undefined, 2)}\n`);
  console.log(`\nThe figures are in ${file}.`);
}

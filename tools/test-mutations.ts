/**
 * Mutation testing of the packages in mutation/targets.ts, by Stryker:
 *
 *     npm run test:mutations -- [--package libs/auth]... [--minutes N] [--fresh]
 *     npm run test:mutations -- [--package libs/auth]... --sample N [--seed S]
 *
 * It changes a copy of the repository, never the tree. It tries one source file after the other and
 * keeps each result in node_modules/.cache. A later run continues after the last complete file and
 * tries only mutants whose code or tests have changed; `--fresh` tries all. `--minutes` bounds the
 * start of further files. A sample, of N mutants per package, neither reads nor writes results.
 * Ends with 1 where a file cannot be tried. Of packages whose files all have a result, also where
 * the score is below 85 % or an explanation in mutation/explained.json fits no mutant.
 */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { Stryker } from "@stryker-mutator/core";
import { inputsDigest, MutationResults, mutatedFiles } from "./mutation/results.ts";
import {
  type ExplainedMutant,
  MIN_SCORE,
  type MissedMutant,
  scoreOf,
  type TriedMutant,
} from "./mutation/score.ts";
import { type PackageSummary, passes, summaryTable } from "./mutation/summary.ts";
import { type MutationTarget, TARGETS, targetOf } from "./mutation/targets.ts";

const root = fileURLToPath(new URL("..", import.meta.url));
const results = new MutationResults(join(root, "node_modules/.cache/heddle-mutations"));

/** Beyond this, plus half of what its tests usually take, a mutant counts as timed out. */
const TIMEOUT_MS = 10_000;
/** All tests once, with a count of what each one covers, on a machine that does much else. */
const DRY_RUN_MINUTES = 30;
/** A mutant that fills its heap ends; Stryker starts the runner again. */
const MAX_HEAP_MB = 2048;

interface RunOptions {
  readonly targets: readonly MutationTarget[];
  readonly sample: number | undefined;
  readonly seed: number;
  readonly fresh: boolean;
  readonly minutes: number;
}

const options = readOptions();
process.chdir(root);
if (options.sample === undefined) await tryFiles(options);
else await trySamples(options, options.sample);

/** Every due file of each package, until the time has ended. */
async function tryFiles({ targets, fresh, minutes }: RunOptions): Promise<void> {
  const endMs = performance.now() + minutes * 60_000;
  const summaries: PackageSummary[] = [];
  for (const target of targets) {
    const files = mutatedFiles(root, target);
    const digest = inputsDigest(root, target);
    for (const file of results.due(files, digest, fresh)) {
      if (performance.now() >= endMs) break;
      await tryFile(target, file, digest, fresh);
    }
    summaries.push(summarize(target, files, digest));
  }
  console.log(`\n${summaryTable(summaries)}`);
  if (!passes(summaries)) process.exitCode = 1;
}

async function tryFile(
  target: MutationTarget,
  file: string,
  digest: string,
  fresh: boolean,
): Promise<void> {
  const startMs = performance.now();
  try {
    const mutants = await tryMutants(target, {
      mutate: [file],
      incremental: true,
      incrementalFile: results.incrementalFile(file),
      force: fresh,
    });
    results.write(file, digest, mutants);
    const { percent, detected } = score(mutants);
    const seconds = ((performance.now() - startMs) / 1000).toFixed(0);
    console.log(`${file}: ${percent.toFixed(1)} %, ${detected} detected, in ${seconds} s`);
  } catch (error) {
    console.error(`${file} cannot be tried: ${(error as Error).message}`);
    process.exitCode = 1;
  }
}

function summarize(
  { name }: MutationTarget,
  files: readonly string[],
  digest: string,
): PackageSummary {
  const tried = files
    .map((file) => results.read(file, digest))
    .filter((each) => each !== undefined);
  const whole = score(tried.flat());
  for (const missed of whole.missed) report(missed);
  for (const { file, code, replacement } of whole.stale) {
    console.log(`${file}: explained, but no mutant survives: ${code} -> ${replacement}`);
  }
  return { name, score: whole, files: files.length, tried: tried.length };
}

/** A sample of each package, of all its mutants: also of those that no test covers. */
async function trySamples({ targets, seed }: RunOptions, size: number): Promise<void> {
  for (const target of targets) {
    const startMs = performance.now();
    const { name } = target;
    const mutants = await tryMutants(target, {
      mutate: [`${name}/**/*.ts`, `!${name}/**/*.test.ts`, `!${name}/**/{testing,script,dist}/**`],
      checkers: ["sample"],
      heddleSample: { size, seed },
    });
    const { percent, detected, timedOut, missed, explained } = score(mutants);
    for (const each of missed) report(each);
    const survived = missed.filter(({ covered }) => covered).length;
    const seconds = ((performance.now() - startMs) / 1000).toFixed(0);
    console.log(
      `${name}: score ${percent.toFixed(1)} % (at least ${MIN_SCORE}): ${detected} detected ` +
        `(${timedOut} by time), ${survived} survived, ` +
        `${missed.length - survived} not covered, ${explained} explained, ` +
        `in ${seconds} s, a sample of ${size} by seed ${seed}`,
    );
    if (percent < MIN_SCORE) process.exitCode = 1;
  }
}

async function tryMutants(
  { name }: MutationTarget,
  what: ConstructorParameters<typeof Stryker>[0],
): Promise<TriedMutant[]> {
  // Stryker starts its runners with this process's environment.
  process.env["HEDDLE_MUTATION_TARGET"] = name;
  const scratch = mkdtempSync(join(tmpdir(), "heddle-mutations-"));
  const stryker = new Stryker({
    testRunner: "vitest",
    plugins: ["@stryker-mutator/vitest-runner", join(root, "tools/mutation/sample-checker.mjs")],
    vitest: { configFile: "tools/mutation/vitest.config.ts", related: false },
    // The wording of messages is no behaviour; what is computed once at the import needs every test.
    mutator: { excludedMutations: ["StringLiteral"] },
    ignoreStatic: true,
    coverageAnalysis: "perTest",
    ignorePatterns: [".bench", ".nx", "docs"],
    tempDirName: scratch,
    // Stryker would rewrite its references by an API that TypeScript 7 does not have.
    tsconfigFile: "none",
    concurrency: 1,
    testRunnerNodeArgs: [`--max-old-space-size=${MAX_HEAP_MB}`],
    timeoutMS: TIMEOUT_MS,
    dryRunTimeoutMinutes: DRY_RUN_MINUTES,
    disableTypeChecks: false,
    allowConsoleColors: false,
    reporters: ["progress-append-only"],
    warnings: false,
    ...what,
  });
  try {
    const mutants = await stryker.runMutationTest();
    return mutants.map((mutant) => ({ ...mutant, fileName: pathOf(mutant.fileName) }));
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

function score(mutants: readonly TriedMutant[]) {
  const path = join(root, "tools/mutation/explained.json");
  const explanations = JSON.parse(readFileSync(path, "utf8")) as ExplainedMutant[];
  return scoreOf(mutants, explanations, (file) => readFileSync(join(root, file), "utf8"));
}

/** From the root, with forward slashes. */
function pathOf(file: string): string {
  return file.replace(root, "").replaceAll("\\", "/");
}

function report({ file, line, code, replacement, covered }: MissedMutant): void {
  const what = covered ? "survived" : "not covered";
  console.log(`${file}:${line} ${what}: ${shortened(code)} -> ${shortened(replacement)}`);
}

function shortened(code: string): string {
  return code.length <= 100 ? code : `${code.slice(0, 97)}...`;
}

function readOptions(): RunOptions {
  try {
    const { values } = parseArgs({
      options: {
        package: { type: "string", multiple: true },
        sample: { type: "string" },
        seed: { type: "string", default: "1" },
        fresh: { type: "boolean", default: false },
        minutes: { type: "string" },
      },
    });
    const whole = (name: string, text: string, least: number) => {
      const number = Number(text);
      if (Number.isSafeInteger(number) && number >= least) return number;
      throw new Error(`--${name} takes a whole number from ${least}, got ${text}`);
    };
    const { sample, minutes } = values;
    return {
      targets: values.package ? values.package.map(targetOf) : TARGETS,
      sample: sample === undefined ? undefined : whole("sample", sample, 1),
      seed: whole("seed", values.seed, 0),
      fresh: values.fresh,
      minutes: minutes === undefined ? Number.POSITIVE_INFINITY : whole("minutes", minutes, 1),
    };
  } catch (error) {
    const usage =
      "npm run test:mutations -- [--package NAME]... [--minutes N] [--fresh] [--sample N [--seed S]]";
    console.error(`${(error as Error).message}\nusage: ${usage}`);
    process.exit(2);
  }
}

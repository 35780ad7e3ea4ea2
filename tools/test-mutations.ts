/**
 * Mutation testing of the packages in mutation/targets.ts, by Stryker:
 *
 *     npm run test:mutations -- [--package libs/auth]... [--sample N] [--seed S] [--fresh]
 *
 * It changes a copy of the repository, never the tree. Results are kept by the content of files and tests
 * in node_modules/.cache, so that a run tries only what has changed; `--fresh` tries everything, and a
 * sample, of N mutants per package, neither reads nor writes them. Ends with 1 where a package's score is
 * below 85 % or an explanation in mutation/explained.json fits no mutant any more.
 */
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { Stryker } from "@stryker-mutator/core";
import { type ExplainedMutant, MIN_SCORE, type MutationScore, scoreOf } from "./mutation/score.ts";
import { type MutationTarget, TARGETS, targetOf } from "./mutation/targets.ts";

const root = fileURLToPath(new URL("..", import.meta.url));
const cache = join(root, "node_modules/.cache/heddle-mutations");

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
}

const options = readOptions();
process.chdir(root);
mkdirSync(cache, { recursive: true });
// Stryker starts its runners with this process's environment.
for (const target of options.targets) {
  const startMs = performance.now();
  const score = await tryMutants(target, options);
  report(target, score, options, (performance.now() - startMs) / 1000);
  const staleEntries = options.sample === undefined ? score.stale : [];
  if (score.percent < MIN_SCORE || staleEntries.length > 0) process.exitCode = 1;
}

async function tryMutants(
  { name }: MutationTarget,
  { sample, seed, fresh }: RunOptions,
): Promise<MutationScore> {
  process.env["HEDDLE_MUTATION_TARGET"] = name;
  const scratch = mkdtempSync(join(tmpdir(), "heddle-mutations-"));
  const stryker = new Stryker({
    testRunner: "vitest",
    plugins: ["@stryker-mutator/vitest-runner", join(root, "tools/mutation/sample-checker.mjs")],
    vitest: { configFile: "tools/mutation/vitest.config.ts", related: false },
    mutate: [`${name}/**/*.ts`, `!${name}/**/*.test.ts`, `!${name}/**/{testing,dist}/**`],
    // The wording of messages is no behaviour; what is computed once at the import needs every test.
    mutator: { excludedMutations: ["StringLiteral"] },
    ignoreStatic: true,
    coverageAnalysis: "perTest",
    checkers: sample === undefined ? [] : ["sample"],
    heddleSample: { size: sample, seed },
    incremental: sample === undefined,
    incrementalFile: join(cache, `${name.replaceAll("/", "-")}.json`),
    force: fresh,
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
  });
  try {
    const mutants = await stryker.runMutationTest();
    const files = mutants.map((mutant) => ({ ...mutant, fileName: pathOf(mutant.fileName) }));
    return scoreOf(files, explanations(), (file) => readFileSync(join(root, file), "utf8"));
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

/** From the root, with forward slashes. */
function pathOf(file: string): string {
  return file.replace(root, "").replaceAll("\\", "/");
}

function explanations(): ExplainedMutant[] {
  const path = join(root, "tools/mutation/explained.json");
  return JSON.parse(readFileSync(path, "utf8")) as ExplainedMutant[];
}

function report(
  { name }: MutationTarget,
  { detected, timedOut, missed, explained, stale, percent }: MutationScore,
  { sample, seed }: RunOptions,
  seconds: number,
): void {
  for (const { file, line, code, replacement, covered } of missed) {
    if (covered || sample === undefined) {
      const what = covered ? "survived" : "not covered";
      console.log(`${file}:${line} ${what}: ${shortened(code)} -> ${shortened(replacement)}`);
    }
  }
  for (const { file, code, replacement } of sample === undefined ? stale : []) {
    console.log(`${file}: explained, but no mutant survives: ${code} -> ${replacement}`);
  }
  const survived = missed.filter(({ covered }) => covered).length;
  const tried = sample === undefined ? "" : `, a sample of ${sample} by seed ${seed}`;
  console.log(
    `${name}: score ${percent.toFixed(1)} % (at least ${MIN_SCORE}): ${detected} detected ` +
      `(${timedOut} by time), ${survived} survived, ${missed.length - survived} not covered, ` +
      `${explained} explained, in ${seconds.toFixed(0)} s${tried}`,
  );
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
      },
    });
    const whole = (name: string, text: string, least: number) => {
      const number = Number(text);
      if (Number.isSafeInteger(number) && number >= least) return number;
      throw new Error(`--${name} takes a whole number from ${least}, got ${text}`);
    };
    return {
      targets: values.package ? values.package.map(targetOf) : TARGETS,
      sample: values.sample === undefined ? undefined : whole("sample", values.sample, 1),
      seed: whole("seed", values.seed, 0),
      fresh: values.fresh,
    };
  } catch (error) {
    const usage = "npm run test:mutations -- [--package NAME]... [--sample N] [--seed S] [--fresh]";
    console.error(`${(error as Error).message}\nusage: ${usage}`);
    process.exit(2);
  }
}

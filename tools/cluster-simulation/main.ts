/**
 * Runs seeds of the whole cluster's simulation:
 *
 *   npm run simulate:cluster -- [--seeds 10] [--seed 1] [--seconds 60] [--faults cutWorker,...] [--without NAME,...]
 *                               [--bug NAME | --bugs NAME,...] [--trains] [--first-failure] [--trace]
 *
 * The masters' modules and the workers run as they are, over simulated network, time and programs.
 * Prints each failure with the command that repeats it, shrunk, and at the end a fingerprint of all runs.
 * Ends with 1 where a seed failed. `--bugs` plants each of the bugs, or `all`, under its faults, and
 * ends with 1 where one is not found within the seeds.
 */
import { createHash } from "node:crypto";
import { parseArgs } from "node:util";
import { redirectImports } from "./redirects.ts";
import { installVirtualGlobals } from "./virtual-globals.ts";

const { values } = readOptions();
// Each simulated worker that was killed leaves a listener.
process.setMaxListeners(0);
redirectImports();
installVirtualGlobals();
const { simulateCluster } = await import("./simulate-cluster.ts");
const { shrinkRun } = await import("./shrink.ts");
const { CLUSTER_BUGS, circumstancesOf } = await import("./cluster-bugs.ts");
const { CLUSTER_FAULTS } = await import("./cluster-faults.ts");
type Run = Parameters<typeof simulateCluster>[0];
type Bug = (typeof CLUSTER_BUGS)[number];
type Result = Awaited<ReturnType<typeof simulateCluster>>;

const bug = values.bug === undefined ? undefined : bugOf(values.bug);
const faults = faultsOf("faults");
const trains = values.trains || undefined;
const without = faultsOf("without");
const [first = 1, count = 1, seconds = 1] = (["seed", "seeds", "seconds"] as const).map(
  wholeNumber,
);
const failed = values.bugs ? await findBugs(bugsOf(values.bugs)) : await runSeeds();
process.exit(failed > 0 ? 1 : 0);

async function runSeeds(): Promise<number> {
  const startCpu = process.cpuUsage();
  const total = { events: 0, accepted: 0, starts: 0, updates: 0, restored: 0 };
  const fingerprint = createHash("sha256");
  let failures = 0;
  let runs = 0;
  for (let seed = first; seed < first + count; seed++) {
    const onTrace = values.trace ? (line: string) => console.log(line) : undefined;
    const run = { seed, seconds, bug, faults, without, trains, onTrace };
    const result = await simulateCluster(run);
    runs++;
    fingerprint.update(result.fingerprint);
    for (const key of Object.keys(total) as (keyof typeof total)[]) total[key] += result[key];
    if (!result.violation) continue;
    failures++;
    await report(run, result);
    if (values["first-failure"]) break;
  }
  console.log(
    `${runs} seeds from ${first}: ${runs - failures} passed, ${failures} failed; ${total.events} events, ${total.accepted} jobs, ${total.starts} tasks, ${total.updates} updates, ${total.restored} shards restored, ${cpuSeconds(startCpu)} s of CPU`,
  );
  console.log(`fingerprint ${fingerprint.digest("hex")}`);
  return failures;
}

async function report(run: Run, result: Result): Promise<void> {
  const { seed, violation } = result;
  console.log(`seed ${seed} failed: ${violation?.invariant}\n  ${violation?.detail}`);
  const smallest = bug || values.trace ? run : await shrinkRun(run, result);
  const flags = [
    ["faults", smallest.faults?.join()],
    ["without", smallest.without?.join()],
    ["bug", smallest.bug],
  ].flatMap(([name, value]) => (value ? [` --${name} ${value}`] : []));
  if (smallest.trains) flags.push(" --trains");
  console.log(
    `repeat it: npm run simulate:cluster -- --seeds 1 --seed ${seed} --seconds ${smallest.seconds}${flags.join("")} --trace\n`,
  );
}

/** Plants each bug; returns how many were not found. */
async function findBugs(bugs: readonly Bug[]): Promise<number> {
  let missed = 0;
  for (const name of bugs) {
    const startCpu = process.cpuUsage();
    const found = await firstFailure({ seed: first, seconds, bug: name, ...circumstancesOf(name) });
    const { violation, seed } = found ?? {};
    if (!violation) missed++;
    const what = violation ? `seed ${seed}: ${violation.invariant}` : "NOT FOUND";
    console.log(`${name}: ${what} (${cpuSeconds(startCpu)} s of CPU)`);
  }
  console.log(`${bugs.length - missed} of ${bugs.length} bugs found`);
  return missed;
}

async function firstFailure(run: Run): Promise<Result | undefined> {
  for (let seed = first; seed < first + count; seed++) {
    const result = await simulateCluster({ ...run, seed });
    if (result.violation) return result;
  }
  return undefined;
}

function cpuSeconds(start: NodeJS.CpuUsage): string {
  const { user, system } = process.cpuUsage(start);
  return ((user + system) / 1e6).toFixed(1);
}

function readOptions() {
  try {
    return parseArgs({
      options: {
        seeds: { type: "string", default: "10" },
        seed: { type: "string", default: "1" },
        seconds: { type: "string", default: "60" },
        faults: { type: "string" },
        without: { type: "string" },
        bug: { type: "string" },
        bugs: { type: "string" },
        "first-failure": { type: "boolean", default: false },
        trains: { type: "boolean", default: false },
        trace: { type: "boolean", default: false },
      },
    });
  } catch (error) {
    return exitWithError((error as Error).message);
  }
}

function bugsOf(names: string): readonly Bug[] {
  return names === "all" ? CLUSTER_BUGS : names.split(",").map(bugOf);
}

function bugOf(name: string): Bug {
  const known = CLUSTER_BUGS.find((each) => each === name);
  return known ?? exitWithError(`a bug is one of ${CLUSTER_BUGS.join(", ")}; got ${name}`);
}

function faultsOf(option: "faults" | "without") {
  return values[option]?.split(",").map((name) => {
    const known = CLUSTER_FAULTS.find((fault) => fault === name);
    return known ?? exitWithError(`--${option} takes ${CLUSTER_FAULTS.join(", ")}; got ${name}`);
  });
}

function wholeNumber(name: "seed" | "seeds" | "seconds"): number {
  const value = Number(values[name]);
  if (Number.isSafeInteger(value) && value > 0) return value;
  return exitWithError(`--${name} takes a positive whole number, got ${values[name]}`);
}

function exitWithError(problem: string): never {
  console.error(
    `${problem}\nusage: npm run simulate:cluster -- [--seeds N] [--seed N] [--seconds N] [--faults NAME,...] [--without NAME,...] [--bug NAME | --bugs NAME,...] [--trains] [--first-failure] [--trace]`,
  );
  process.exit(2);
}

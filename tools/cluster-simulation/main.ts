/**
 * Runs seeds of the whole cluster's simulation:
 *
 *   npm run simulate:cluster -- [--seeds 10] [--seed 1] [--seconds 60] [--faults cutWorker,...] [--bug NAME]
 *                               [--first-failure] [--trace]
 *
 * The masters' modules and the workers run as they are, over simulated network, time and programs.
 * Prints each failure with the command that repeats it, and at the end a fingerprint of all runs.
 * Ends with 1 where a seed failed.
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
const { CLUSTER_BUGS } = await import("./cluster-bugs.ts");

const bug = CLUSTER_BUGS.find((name) => name === values.bug);
if (values.bug !== undefined && !bug) endWith(`--bug takes ${CLUSTER_BUGS.join(", ")}`);
const { CLUSTER_FAULTS } = await import("./cluster-faults.ts");
const faults = values.faults?.split(",").map((name) => {
  const known = CLUSTER_FAULTS.find((fault) => fault === name);
  return known ?? endWith(`--faults takes ${CLUSTER_FAULTS.join(", ")}; got ${name}`);
});
const [first, count, seconds] = (["seed", "seeds", "seconds"] as const).map(wholeNumber);
const failed = await runSeeds(first ?? 1, count ?? 1);
process.exit(failed > 0 ? 1 : 0);

async function runSeeds(from: number, seeds: number): Promise<number> {
  const startCpu = process.cpuUsage();
  const total = { events: 0, accepted: 0, starts: 0 };
  const fingerprint = createHash("sha256");
  let failures = 0;
  let runs = 0;
  for (let seed = from; seed < from + seeds; seed++) {
    const result = await simulateCluster({
      seed,
      seconds,
      bug,
      faults,
      onTrace: values.trace ? (line) => console.log(line) : undefined,
    });
    runs++;
    fingerprint.update(result.fingerprint);
    for (const key of Object.keys(total) as (keyof typeof total)[]) total[key] += result[key];
    const { violation } = result;
    if (!violation) continue;
    failures++;
    const flags = `${values.faults === undefined ? "" : ` --faults ${values.faults}`}${bug ? ` --bug ${bug}` : ""}`;
    console.log(`seed ${seed} failed: ${violation.invariant}\n  ${violation.detail}`);
    console.log(
      `repeat it: npm run simulate:cluster -- --seeds 1 --seed ${seed} --seconds ${seconds}${flags} --trace\n`,
    );
    if (values["first-failure"]) break;
  }
  const { user, system } = process.cpuUsage(startCpu);
  console.log(
    `${runs} seeds from ${from}: ${runs - failures} passed, ${failures} failed; ${total.events} events, ${total.accepted} jobs, ${total.starts} tasks, ${((user + system) / 1e6).toFixed(1)} s of CPU`,
  );
  console.log(`fingerprint ${fingerprint.digest("hex")}`);
  return failures;
}

function readOptions() {
  try {
    return parseArgs({
      options: {
        seeds: { type: "string", default: "10" },
        seed: { type: "string", default: "1" },
        seconds: { type: "string", default: "60" },
        faults: { type: "string" },
        bug: { type: "string" },
        "first-failure": { type: "boolean", default: false },
        trace: { type: "boolean", default: false },
      },
    });
  } catch (error) {
    return endWith((error as Error).message);
  }
}

function wholeNumber(name: "seed" | "seeds" | "seconds"): number {
  const value = Number(values[name]);
  if (Number.isSafeInteger(value) && value > 0) return value;
  return endWith(`--${name} takes a positive whole number, got ${values[name]}`);
}

function endWith(problem: string): never {
  console.error(
    `${problem}\nusage: npm run simulate:cluster -- [--seeds N] [--seed N] [--seconds N] [--faults NAME,...] [--bug NAME] [--first-failure] [--trace]`,
  );
  process.exit(2);
}

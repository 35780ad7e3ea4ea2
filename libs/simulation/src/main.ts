/**
 * Runs seeds of the simulation:
 *
 *   npm run simulate -- [--seeds 100] [--seed 1] [--events 3000] [--faults crashes,loss]
 *                       [--bug NAME] [--trace]
 *
 * Prints each failure with the command that repeats it, and at the end the rate. Exit code 1 where a
 * seed failed.
 */
import { parseArgs } from "node:util";
import { FAULTS, type InjectedFault } from "./faults.ts";
import { SEEDED_BUGS, type SeededBug } from "./seeded-bug.ts";
import { type SimulationOptions, type SimulationResult, simulate } from "./simulation.ts";

/** Trace lines shown for a failure. */
const SHORT_TRACE_LINES = 40;
const USAGE = `npm run simulate -- [--seeds N] [--seed N] [--events N] [--faults ${FAULTS.join(",")}] [--bug ${SEEDED_BUGS.join("|")}] [--trace]`;

async function main(): Promise<void> {
  const { first, count, ...options } = readOptions();
  const failed = await runSeeds(first, count, options);
  process.exitCode = failed > 0 ? 1 : 0;
}

type SeedOptions = Omit<SimulationOptions, "seed">;

/**
 * The options of the command line; an invalid one, or `--help`, prints the usage and ends the
 * process.
 */
function readOptions(): SeedOptions & { readonly first: number; readonly count: number } {
  try {
    const { values } = parseArgs({
      options: {
        seeds: { type: "string", default: "100" },
        seed: { type: "string", default: "1" },
        events: { type: "string", default: "3000" },
        faults: { type: "string" },
        bug: { type: "string" },
        trace: { type: "boolean", default: false },
        help: { type: "boolean", short: "h", default: false },
      },
    });
    if (values.help) {
      console.log(`usage: ${USAGE}`);
      process.exit(0);
    }
    return {
      first: wholeNumber("seed", values.seed),
      count: wholeNumber("seeds", values.seeds),
      events: wholeNumber("events", values.events),
      faults: values.faults === undefined ? undefined : faultsOf(values.faults),
      bug: values.bug === undefined ? undefined : oneOf("bug", SEEDED_BUGS, values.bug),
      onTrace: values.trace ? (line: string) => console.log(line) : undefined,
    };
  } catch (error) {
    console.error(`${(error as Error).message}\nusage: ${USAGE}`);
    process.exit(2);
  }
}

async function runSeeds(first: number, count: number, options: SeedOptions): Promise<number> {
  const startMs = performance.now();
  const startCpu = process.cpuUsage();
  let failed = 0;
  let events = 0;
  let committed = 0;
  for (let seed = first; seed < first + count; seed++) {
    const result = await simulate({ ...options, seed });
    events += result.events;
    committed += result.committed;
    if (!result.violation) continue;
    failed++;
    await report(result, options);
  }
  const seconds = (performance.now() - startMs) / 1000;
  const { user, system } = process.cpuUsage(startCpu);
  const rate = Math.round(events / seconds).toLocaleString("en");
  const cpuRate = Math.round(events / ((user + system) / 1e6)).toLocaleString("en");
  console.log(
    `${count} seeds from ${first}: ${count - failed} passed, ${failed} failed; ${events} events, ${committed} entries committed, ${seconds.toFixed(1)} s, ${rate} events/s, ${cpuRate} per CPU second`,
  );
  return failed;
}

/** Runs the seed again with a trace of the failure: runs without a trace are faster. */
async function report({ seed, violation }: SimulationResult, options: SeedOptions): Promise<void> {
  const lines: string[] = [];
  await simulate({ ...options, seed, onTrace: (line) => lines.push(line) });
  console.log(`seed ${seed} failed: ${violation?.invariant}\n  ${violation?.detail}`);
  for (const line of lines.slice(-SHORT_TRACE_LINES)) console.log(`  ${line}`);
  console.log(`repeat it: ${replayCommand(seed, options)}\n`);
}

function replayCommand(seed: number, { events, faults, bug }: SeedOptions): string {
  const parts = [`npm run simulate -- --seeds 1 --seed ${seed} --events ${events}`];
  if (faults) parts.push(`--faults ${faults.join(",")}`);
  if (bug) parts.push(`--bug ${bug}`);
  return [...parts, "--trace"].join(" ");
}

function wholeNumber(name: string, text: string): number {
  const value = Number(text);
  if (Number.isSafeInteger(value) && value > 0) return value;
  throw new Error(`--${name} takes a positive whole number, got ${text}`);
}

function faultsOf(text: string): readonly InjectedFault[] {
  return text.split(",").map((name) => oneOf("faults", FAULTS, name));
}

function oneOf<T extends string>(option: string, known: readonly T[], text: string): T {
  const found = known.find((name) => name === text) as T | SeededBug | undefined;
  if (found) return found as T;
  throw new Error(`--${option} takes ${known.join(", ")}; got ${text}`);
}

await main();

/**
 * The scheduler's benchmark: GPU allocation on the openb traces under the FGD paper's set-up, and
 * placements per second.
 *
 * - `npm run bench:scheduler -- --traces DIR [--seeds 10] [--json FILE]`: everything.
 * - `npm run bench:scheduler -- --raft [--json FILE]`: only placements through Raft.
 * - `npm run bench:scheduler -- --node-changes [--json FILE]`: only the update of the scheduler's
 *   view after one node's change.
 * - `npm run bench:scheduler -- --waiting [--json FILE]`: only decisions with waiting jobs on a
 *   full cluster.
 *
 * DIR holds openb_node_list_gpu_node.csv and openb_pod_list_*.csv; each pod list is one trace,
 * reported under its file's base name.
 */
import { writeFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { measureNodeChanges } from "./node-changes.ts";
import { type Allocation, measureAllocation, POLICIES, type PolicyName } from "./simulate.ts";
import { measureThroughRaft, type RaftThroughput } from "./through-raft.ts";
import { measureSchedulerThroughput, type SchedulerThroughput } from "./throughput.ts";
import { readTraces } from "./trace.ts";
import { measureWaitingJobs } from "./waiting-jobs.ts";

/** The file that `--json` names. */
interface Report {
  readonly traces: Record<string, Record<PolicyName, Allocation>>;
  readonly placementsPerSecond: SchedulerThroughput & { readonly raft: RaftThroughput };
}

const DEFAULT_SEEDS = "10";

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      traces: { type: "string" },
      seeds: { type: "string", default: DEFAULT_SEEDS },
      json: { type: "string" },
      raft: { type: "boolean", default: false },
      "node-changes": { type: "boolean", default: false },
      waiting: { type: "boolean", default: false },
    },
  });
  const measured = await measureOne(values);
  if (measured) {
    console.log(measured);
    if (values.json) writeFileSync(values.json, `${JSON.stringify(measured, null, 2)}\n`);
    return;
  }
  const seeds = Number(values.seeds);
  if (!values.traces || !Number.isInteger(seeds) || seeds < 1) {
    console.error("usage: npm run bench:scheduler -- --traces DIR [--seeds N] [--json FILE]");
    process.exitCode = 2;
    return;
  }
  const report = await measure(values.traces, seeds);
  if (values.json) writeFileSync(values.json, `${JSON.stringify(report, null, 2)}\n`);
}

/** The one requested measurement; undefined for all. */
async function measureOne(asked: Readonly<Record<string, string | boolean | undefined>>) {
  if (asked["raft"]) return await measureThroughRaft();
  if (asked["node-changes"]) return measureNodeChanges();
  return asked["waiting"] ? measureWaitingJobs() : undefined;
}

/** Runs everything, printing each result as it is available. */
async function measure(dir: string, seeds: number): Promise<Report> {
  const placementsPerSecond = { ...measureSchedulerThroughput(), raft: await measureThroughRaft() };
  const { raft } = placementsPerSecond;
  const { nodes, gpus, shapes, placement, schedule } = placementsPerSecond;
  console.log(`${nodes} nodes, ${gpus} GPUs, ${shapes} shapes of request`);
  console.log(`placements/s: ${placement} placement path, ${schedule} whole schedule()`);
  console.log(
    `through Raft with fsync: ${raft.perSecond} of waiting jobs, ${raft.streamedPerSecond} from submission on\n`,
  );

  const { nodes: traceNodes, traces } = readTraces(dir);
  const names = Object.keys(POLICIES) as PolicyName[];
  console.log(`GPU allocation in percent, ${seeds} seeds from 42`);
  console.log("trace".padEnd(32), names.map((name) => name.padStart(8)).join(""));
  const results: Report["traces"] = {};
  for (const trace of traces) {
    const row = Object.fromEntries(
      names.map((name) => [name, measureAllocation(name, traceNodes, trace, seeds)]),
    ) as Record<PolicyName, Allocation>;
    results[trace.name] = row;
    const means = names.map((name) => row[name].mean.toFixed(2).padStart(8)).join("");
    console.log(trace.name.padEnd(32), means);
  }
  const rows = Object.values(results);
  const level = rows.filter(({ heddle, fgd }) => heddle.mean >= fgd.mean).length;
  console.log(`\nheddle >= fgd on ${level} of ${rows.length} traces`);
  return { traces: results, placementsPerSecond };
}

await main();

import { readOptions } from "../support/command-line.ts";
import { writeReport } from "../support/result.ts";
import { atLeast, printTable, printVerdicts, type Verdict } from "../support/table.ts";
import { measureNodeChanges } from "./node-changes.ts";
import { type Allocation, measureAllocation, POLICIES, type PolicyName } from "./simulate.ts";
import { measureThroughRaft } from "./through-raft.ts";
import { measureSchedulerThroughput } from "./throughput.ts";
import { readTraces } from "./trace.ts";
import { measureWaitingJobs } from "./waiting-jobs.ts";

// GPU allocation on the openb traces under the FGD paper's set-up, and what decisions cost.

/** The first needs `--traces DIR` with openb_node_list_gpu_node.csv and openb_pod_list_*.csv. */
const PARTS = {
  allocation: measureAllocations,
  throughput: measureThroughput,
  raft: measureRaft,
  "node-changes": measureChanges,
  waiting: measureWaiting,
};

const usage = `npm run bench:scheduler -- --traces DIR [--seeds 10] [--only ${Object.keys(PARTS).join(",")}]`;
const options = readOptions(usage, ["traces", "seeds", "only"]);
const only = options["only"]?.split(",") ?? Object.keys(PARTS);
const verdicts: Verdict[] = [];
const figures: Record<string, object> = {};
for (const [name, measure] of Object.entries(PARTS)) {
  if (only.includes(name)) figures[name] = await measure();
}
if (verdicts.length > 0) printVerdicts(verdicts);
writeReport(options, "scheduler", figures);

function measureAllocations(): Record<string, Record<PolicyName, Allocation>> {
  const seeds = Number(options["seeds"] ?? 10);
  if (!options["traces"] || !Number.isInteger(seeds) || seeds < 1) {
    console.error(`--traces DIR is missing, or --seeds is not a number\nusage: ${usage}`);
    process.exit(2);
  }
  const { nodes, traces } = readTraces(options["traces"]);
  const names = Object.keys(POLICIES) as PolicyName[];
  const allocations = traces.map((trace) => {
    console.log(`${trace.name} ...`);
    const of = (name: PolicyName) => [name, measureAllocation(name, nodes, trace, seeds)] as const;
    return [
      trace.name,
      Object.fromEntries(names.map(of)) as Record<PolicyName, Allocation>,
    ] as const;
  });
  printTable(
    `GPUs allocated in percent, mean of ${seeds} seeds from 42 (sample standard deviation)`,
    ["trace", ...names],
    allocations.map(([trace, byPolicy]) => [
      trace,
      ...names.map(
        (name) => `${byPolicy[name].mean.toFixed(2)} (${byPolicy[name].std.toFixed(2)})`,
      ),
    ]),
  );
  const level = allocations.filter(([, { heddle, fgd }]) => heddle.mean >= fgd.mean).length;
  verdicts.push({
    bar: "heddle allocates at least as much as FGD on every trace",
    measured: `on ${level} of ${allocations.length}`,
    pass: level === allocations.length,
  });
  return Object.fromEntries(allocations);
}

function measureThroughput(): object {
  const measured = measureSchedulerThroughput();
  const { nodes, gpus, jobs, shapes, placement, schedule } = measured;
  printTable(
    `${jobs} jobs of ${shapes} shapes on ${nodes} nodes with ${gpus} GPUs, the fastest of 3 runs`,
    ["what", "placements/s"],
    [
      ["the placement path alone", placement],
      ["the whole of schedule()", schedule],
    ],
  );
  verdicts.push(atLeast("placements/s of the whole of schedule()", schedule, 10_000));
  return measured;
}

async function measureRaft(): Promise<object> {
  const measured = await measureThroughRaft();
  const { nodes, jobs, plans, perSecond, submitsPerSecond, streamedPerSecond } = measured;
  printTable(
    `${jobs} jobs on ${nodes} nodes through one master's log with fsync, per second`,
    ["what", "per second"],
    [
      [`placements, all jobs waiting (${plans} entries)`, perSecond],
      ["submissions alone, an entry each, 256 at once", submitsPerSecond],
      ["submitted and placed at once", streamedPerSecond],
    ],
  );
  verdicts.push(atLeast("placements/s through Raft", streamedPerSecond, 2_000));
  return measured;
}

function measureChanges(): object {
  const measured = measureNodeChanges();
  const { nodes, running, waiting, viewMs, decidedMs, rebuiltMs } = measured;
  printTable(
    `One change on ${nodes} nodes, ${running} running and ${waiting} waiting jobs, CPU ms, median`,
    ["change", "rebuilt view", "view", "view and decision"],
    Object.entries(viewMs).map(([name, ms]) => [
      name,
      rebuiltMs,
      ms,
      decidedMs[name] ?? Number.NaN,
    ]),
  );
  return measured;
}

function measureWaiting(): object {
  const measured = measureWaitingJobs();
  printTable(
    `One decision on ${measured.nodes} full nodes, ${measured.running} running jobs, CPU ms, median`,
    ["what waits", "waiting", "CPU ms", "starts", "evicted"],
    Object.entries(measured.cases).map(([name, { waiting, cpuMs, starts, evicted }]) => [
      name,
      waiting,
      cpuMs,
      starts,
      evicted,
    ]),
  );
  return measured;
}

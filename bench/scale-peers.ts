import { measureJobStorm } from "./scale/job-storm.ts";
import { runKubernetes } from "./scale/peers/kubernetes.ts";
import { runOurJobs } from "./scale/peers/our-jobs.ts";
import { runRay } from "./scale/peers/ray.ts";
import type { PeerRun } from "./scale/peers/short-jobs.ts";
import { runSlurmJobs } from "./scale/peers/slurm.ts";
import { startCluster } from "./scale/steady.ts";
import { withCleanup } from "./support/child-process.ts";
import { readOptions } from "./support/command-line.ts";
import { writeReport } from "./support/result.ts";
import { printTable, printVerdicts, type Verdict } from "./support/table.ts";

// Short jobs through our cluster and through others, one after the other on the same machine.

const usage =
  "npm run bench:scale-peers -- [--jobs 1000] [--rate 10] [--only heddle,slurm,ray,simulated,kubernetes] [--python PYTHON] [--kubeconfig FILE]";
const options = readOptions(usage, ["jobs", "rate", "only", "python", "kubeconfig"]);
const only = new Set((options["only"] ?? "heddle,slurm,ray,simulated,kubernetes").split(","));
const jobs = Number(options["jobs"] ?? 1_000);
const rate = Number(options["rate"] ?? 10);
/** All at once, and ten seconds at the rate. */
const loads = [
  { jobs, rate: 0 },
  { jobs: rate * 10, rate },
];
const SIMULATED_WORKERS = 100;
const SETTLE_MS = 5_000;
/** What each of them is compared with: what does as much for a job. */
const OURS: Readonly<Record<string, string>> = {
  Slurm: "Heddle",
  Ray: "Heddle",
  Kubernetes: "Heddle, simulated workers",
};

await withCleanup(async () => {
  const runs: PeerRun[] = [];
  if (only.has("heddle")) runs.push(...(await runOurJobs(loads)));
  if (only.has("slurm")) runs.push(...(await runSlurmJobs(loads)));
  if (only.has("ray")) runs.push(...runRay(options["python"] ?? "python3", loads));
  if (only.has("simulated")) runs.push(...(await runSimulated()));
  if (only.has("kubernetes")) runs.push(...(await runKubernetes(options["kubeconfig"], loads)));
  printRuns(runs);
  const verdicts = runs.flatMap((run) => judge(run, runs));
  if (verdicts.length > 0) printVerdicts(verdicts);
  writeReport(options, "scale-peers", { runs, verdicts });
});

/** Jobs of a second on workers without processes, as the pods of nodes without a machine. */
async function runSimulated(): Promise<PeerRun[]> {
  const cluster = await startCluster(1, SIMULATED_WORKERS, SETTLE_MS);
  const runs: PeerRun[] = [];
  for (const load of loads) {
    const storm = await measureJobStorm(cluster, load.jobs, load.rate);
    runs.push({
      system: "Heddle, simulated workers",
      unit: "job over HTTP, no process",
      jobs: load.jobs,
      rate: load.rate,
      startedPerSecond: storm.finishedPerSecond,
      startedMs: storm.startedMs,
    });
  }
  await cluster.fleet.stop();
  await cluster.masters.stop();
  return runs;
}

function printRuns(runs: readonly PeerRun[]): void {
  printTable(
    "Short jobs, in ms from their submission",
    ["system", "a job is", "jobs", "submitted/s", "started/s", "started p50", "started p99"],
    runs.map(({ system, unit, jobs: count, rate: each, startedPerSecond, startedMs }) => [
      system,
      unit,
      count,
      each || "all",
      startedPerSecond,
      startedMs.p50,
      startedMs.p99,
    ]),
  );
}

/** Jobs a second of a burst, and the delay at a rate. */
function judge(peer: PeerRun, runs: readonly PeerRun[]): Verdict[] {
  const ours = runs.find(
    ({ system, rate: at }) => system === OURS[peer.system] && at === peer.rate,
  );
  if (!ours) return [];
  const ratio = ours.startedPerSecond / peer.startedPerSecond;
  const delay = ours.startedMs.p50 / peer.startedMs.p50;
  return peer.rate === 0
    ? [{ bar: `jobs/s >= 1x ${peer.system}'s`, measured: `${ratio.toFixed(2)}x`, pass: ratio >= 1 }]
    : [
        {
          bar: `p50 to the start at ${peer.rate}/s <= 1x ${peer.system}'s`,
          measured: `${delay.toFixed(2)}x`,
          pass: delay <= 1,
        },
      ];
}

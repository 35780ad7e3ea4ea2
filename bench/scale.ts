import { type JobStorm, measureJobStorm } from "./scale/job-storm.ts";
import { measureReconnect, type Reconnect } from "./scale/reconnect.ts";
import { measureStalledStorm, type StalledStorm } from "./scale/stall.ts";
import { measureSteady, type SteadyCost, startCluster } from "./scale/steady.ts";
import { withCleanup } from "./support/child-process.ts";
import { numberList, readOptions } from "./support/command-line.ts";
import { writeReport } from "./support/result.ts";
import { printTable, printVerdicts, type Verdict } from "./support/table.ts";

// Real masters with many simulated workers: what idle ones cost, and storms.

const usage =
  "npm run bench:scale -- [--workers 10,100,1000] [--masters 1,3] [--seconds 15] [--only steady,jobs,reconnect,stall] [--jobs N] [--rate 0,167] [--stall 5,20] [--profiles FOLDER]";
const options = readOptions(usage, [
  "workers",
  "masters",
  "seconds",
  "only",
  "jobs",
  "rate",
  "stall",
  "profiles",
]);
const only = new Set((options["only"] ?? "steady,jobs,reconnect").split(","));
const workerCounts = numberList(options["workers"] ?? "10,100,1000");
const masterCounts = numberList(options["masters"] ?? "1,3");
const measureMs = Number(options["seconds"] ?? 15) * 1_000;
const settleMs = Math.min(10_000, measureMs);

const jobs = Number(options["jobs"] ?? 10_000);
/** As many as the callers can submit, and all of them in a minute. */
const jobRates = numberList(options["rate"] ?? `0,${Math.ceil(jobs / 60)}`);
/** The leader is stopped for a time between these, in seconds, with --only stall. */
const [stallLeast = 5, stallMost = stallLeast] = numberList(options["stall"] ?? "5,20");

const bars = {
  corePercent: 15,
  kibPerWorker: 300,
  backMs: 15_000,
  jobsPerSecond: 1_000,
  startedMs: 500,
  settledMs: 60_000,
};

await withCleanup(async () => {
  const steady: SteadyCost[] = [];
  const reconnects: Reconnect[] = [];
  const storms: JobStorm[] = [];
  const stalls: StalledStorm[] = [];
  for (const masters of masterCounts) {
    for (const workers of workerCounts) {
      const cluster = await startCluster(masters, workers, settleMs, options["profiles"]);
      try {
        console.log(`${workers} workers attached to ${masters} masters in ${cluster.attachMs} ms`);
        if (only.has("steady")) steady.push(...(await measureSteady(cluster, settleMs, measureMs)));
        if (only.has("jobs")) {
          for (const rate of jobRates) storms.push(await measureJobStorm(cluster, jobs, rate));
        }
        if (only.has("stall")) {
          const between = [stallLeast * 1_000, stallMost * 1_000] as const;
          stalls.push(await measureStalledStorm(cluster, jobs, between));
        }
        if (only.has("reconnect")) reconnects.push(await measureReconnect(cluster));
      } finally {
        await cluster.fleet.stop();
        await cluster.masters.stop();
      }
    }
  }
  if (steady.length > 0) printSteady(steady);
  if (storms.length > 0) printStorms(storms);
  if (stalls.length > 0) printStalls(stalls);
  if (reconnects.length > 0) printReconnects(reconnects);
  const verdicts = [
    ...judgeSteady(steady),
    ...judgeStorms(storms),
    ...judgeStalls(stalls),
    ...judgeReconnects(reconnects),
  ];
  printVerdicts(verdicts);
  writeReport(options, "scale", { steady, storms, stalls, reconnects, verdicts });
});

function printSteady(costs: readonly SteadyCost[]): void {
  printTable(
    "Idle workers, with 8 GPUs each in every heartbeat",
    ["master", "workers", "of a core, %", "resident, MiB", "KiB a worker", "descriptors a worker"],
    costs.map((cost) => [
      `${cost.role} of ${cost.masters}`,
      cost.workers,
      cost.corePercent,
      cost.residentMiB,
      cost.kibPerWorker,
      cost.descriptorsPerWorker,
    ]),
  );
}

function printReconnects(reconnects: readonly Reconnect[]): void {
  printTable(
    "After kill -9 of the leader",
    ["masters", "workers", "led, s", "all leased, s", "attached to it, s", "most in a second"],
    reconnects.map((each) => [
      `${each.masters}`,
      each.workers,
      each.leaderMs / 1_000,
      each.leasedMs / 1_000,
      each.attachedMs / 1_000,
      each.burst,
    ]),
  );
}

function printStorms(storms: readonly JobStorm[]): void {
  printTable(
    "Jobs of a second each over HTTP, in ms from their submission",
    [
      "masters, workers, jobs a second",
      "accepted/s",
      "finished/s",
      "accepted p99",
      "started p50",
      "started p99",
      "running p99",
      "event lag p99",
      "CPU ms a job",
      "of workers",
      "KiB a job",
    ],
    storms.map((each) => [
      `${each.masters}, ${each.workers}, ${each.rate || "all"}`,
      each.acceptedPerSecond,
      each.finishedPerSecond,
      each.acceptedMs.p99,
      each.startedMs.p50,
      each.startedMs.p99,
      each.runningMs.p99,
      each.eventLagMs.p99,
      each.cpuMsPerJob,
      each.workersCpuMsPerJob,
      each.grownKibPerJob,
    ]),
  );
}

function printStalls(stalls: readonly StalledStorm[]): void {
  printTable(
    "Jobs of a second each, all at once, and a stall of the leader",
    ["masters, workers", "jobs", "stall after, s", "stall, s", "all ended after it, s", "unseen"],
    stalls.map((each) => [
      `${each.masters}, ${each.workers}`,
      each.jobs,
      each.beganMs / 1_000,
      each.stalledMs / 1_000,
      each.settledMs / 1_000,
      each.unseen + each.refused,
    ]),
  );
}

function judgeStalls(stalls: readonly StalledStorm[]): Verdict[] {
  return stalls.map(({ masters, stalledMs, settledMs, unseen, refused }) => ({
    bar: `every job ends within ${bars.settledMs / 1_000} s of a leader's stall, ${masters} masters`,
    measured: `${(settledMs / 1_000).toFixed(1)} s after ${(stalledMs / 1_000).toFixed(1)} s`,
    pass: unseen + refused === 0 && settledMs <= bars.settledMs,
  }));
}

function judgeStorms(storms: readonly JobStorm[]): Verdict[] {
  const most = Math.max(...workerCounts);
  return storms
    .filter(({ workers }) => workers === most)
    .flatMap(({ masters, rate, finishedPerSecond, startedMs, unseen, refused }) => {
      const of = `${most} workers, ${masters} masters, ${rate ? `${rate} jobs/s` : "all at once"}`;
      const none = {
        bar: `every job is accepted and seen to succeed: ${of}`,
        measured: `${unseen} not seen to, ${refused} refused`,
        pass: unseen + refused === 0,
      };
      const speed = {
        bar: `jobs/s >= ${bars.jobsPerSecond}: ${of}`,
        measured: finishedPerSecond.toFixed(0),
        pass: finishedPerSecond >= bars.jobsPerSecond,
      };
      const latency = {
        bar: `p99 from submission to start <= ${bars.startedMs} ms: ${of}`,
        measured: `${startedMs.p99.toFixed(0)} ms`,
        pass: startedMs.p99 <= bars.startedMs,
      };
      return rate ? [none, latency] : [none, speed];
    });
}

function judgeSteady(costs: readonly SteadyCost[]): Verdict[] {
  const most = Math.max(...workerCounts);
  return costs
    .filter(({ workers }) => workers === most)
    .flatMap(({ masters, role, corePercent, kibPerWorker }) => [
      {
        bar: `${most} idle workers cost a ${role} of ${masters} <= ${bars.corePercent} % of a core`,
        measured: `${corePercent.toFixed(1)} %`,
        pass: corePercent <= bars.corePercent,
      },
      {
        bar: `an idle worker costs a ${role} of ${masters} <= ${bars.kibPerWorker} KiB`,
        measured: `${kibPerWorker.toFixed(0)} KiB`,
        pass: kibPerWorker <= bars.kibPerWorker,
      },
    ]);
}

function judgeReconnects(reconnects: readonly Reconnect[]): Verdict[] {
  const most = Math.max(...workerCounts);
  return reconnects
    .filter(({ workers }) => workers === most)
    .map(({ masters, leasedMs }) => ({
      bar: `all ${most} workers are back within ${bars.backMs / 1_000} s of the death of 1 of ${masters}`,
      measured: `${(leasedMs / 1_000).toFixed(1)} s`,
      pass: leasedMs <= bars.backMs,
    }));
}

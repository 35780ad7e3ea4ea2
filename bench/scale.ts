import { measureReconnect, type Reconnect } from "./scale/reconnect.ts";
import { measureSteady, type SteadyCost, startCluster } from "./scale/steady.ts";
import { withCleanup } from "./support/child-process.ts";
import { numberList, readOptions } from "./support/command-line.ts";
import { writeReport } from "./support/result.ts";
import { printTable, printVerdicts, type Verdict } from "./support/table.ts";

// Real masters with many simulated workers: what idle ones cost, and storms.

const usage =
  "npm run bench:scale -- [--workers 10,100,1000] [--masters 1,3] [--seconds 15] [--only steady,reconnect] [--profiles FOLDER]";
const options = readOptions(usage, ["workers", "masters", "seconds", "only", "profiles"]);
const only = new Set((options["only"] ?? "steady,reconnect").split(","));
const workerCounts = numberList(options["workers"] ?? "10,100,1000");
const masterCounts = numberList(options["masters"] ?? "1,3");
const measureMs = Number(options["seconds"] ?? 15) * 1_000;
const settleMs = Math.min(10_000, measureMs);

const bars = { corePercent: 15, kibPerWorker: 300, backMs: 15_000 };

await withCleanup(async () => {
  const steady: SteadyCost[] = [];
  const reconnects: Reconnect[] = [];
  for (const masters of masterCounts) {
    for (const workers of workerCounts) {
      const cluster = await startCluster(masters, workers, settleMs, options["profiles"]);
      try {
        console.log(`${workers} workers attached to ${masters} masters in ${cluster.attachMs} ms`);
        if (only.has("steady")) steady.push(...(await measureSteady(cluster, settleMs, measureMs)));
        if (only.has("reconnect")) reconnects.push(await measureReconnect(cluster));
      } finally {
        await cluster.fleet.stop();
        await cluster.masters.stop();
      }
    }
  }
  if (steady.length > 0) printSteady(steady);
  if (reconnects.length > 0) printReconnects(reconnects);
  const verdicts = [...judgeSteady(steady), ...judgeReconnects(reconnects)];
  printVerdicts(verdicts);
  writeReport(options, "scale", { steady, reconnects, verdicts });
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

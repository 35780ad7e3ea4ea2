import { rmSync } from "node:fs";
import { join } from "node:path";
import { etcdStore, etcdVersion } from "./consensus/etcd-store.ts";
import { measureFailover, measureTransfer } from "./consensus/failover.ts";
import { queryMember } from "./consensus/heddle-client.ts";
import { heddleStore } from "./consensus/heddle-store.ts";
import { measureHttpWrites } from "./consensus/http-writes.ts";
import { measureRestart } from "./consensus/restart.ts";
import { measureSnapshotStall } from "./consensus/snapshot-stall.ts";
import { StoreCluster } from "./consensus/store-cluster.ts";
import {
  type ConsensusThroughput,
  measureConsensusThroughput,
  runConsensusLoad,
} from "./consensus/throughput.ts";
import { judgeThroughput, WORKLOADS } from "./consensus/verdicts.ts";
import { measureWal } from "./consensus/wal-append.ts";
import { withCleanup } from "./support/child-process.ts";
import { benchFolder, numberList, readOptions } from "./support/command-line.ts";
import { writeReport } from "./support/result.ts";
import { summarizeSamples } from "./support/statistics.ts";
import {
  atLeast,
  atMost,
  formatNumber,
  printTable,
  printVerdicts,
  type Verdict,
} from "./support/table.ts";

// The Raft group of masters against etcd: three members of each on one core, clients on another.

const parts = [
  "wal",
  "throughput",
  "failover",
  "blocked",
  "elections",
  "restart",
  "http",
  "snapshot",
] as const;
type Part = (typeof parts)[number];

const usage = `npm run bench:consensus -- [--only ${parts.join("|")}[,...]] [--concurrency 1,16,128] [--seconds N] [--rounds N] [--failovers N] [--minutes N] [--entries N]`;
const options = readOptions(usage, [
  "only",
  "concurrency",
  "seconds",
  "rounds",
  "failovers",
  "minutes",
  "entries",
]);
const seconds = Number(options["seconds"] ?? 3);
const rounds = Number(options["rounds"] ?? 3);
const failovers = Number(options["failovers"] ?? 20);
const minutes = Number(options["minutes"] ?? 0.5);
const restartEntries = Number(options["entries"] ?? 1_000_000);
const only = options["only"]?.split(",") ?? parts;
const folder = join(benchFolder, "consensus");
const logFolder = join(benchFolder, "logs");
const heddlePort = 7_701;
const etcdPort = 7_800;
const blockedMs = 2_500;

const verdicts: Verdict[] = [];
const report: Record<string, unknown> = { seconds, rounds };
const version = etcdVersion();

await withCleanup(async () => {
  console.log(version ?? "etcd is not installed (Debian: etcd-server): the peer is skipped");
  rmSync(folder, { recursive: true, force: true });
  if (wants("wal")) await wal();
  if (wants("throughput") || wants("failover")) await againstPeer();
  if (wants("blocked") || wants("elections")) await alone();
  if (wants("restart")) await restart();
  if (wants("http")) await http();
  if (wants("snapshot")) await snapshot();
  printVerdicts(verdicts);
  writeReport(options, "consensus", { ...report, peer: version, verdicts });
  rmSync(folder, { recursive: true, force: true });
});

function wants(part: Part): boolean {
  return only.includes(part);
}

function heddle(): StoreCluster {
  return new StoreCluster(heddleStore(join(folder, "heddle"), heddlePort), logFolder);
}

async function wal(): Promise<void> {
  const figures = await measureWal(join(folder, "wal"), { rounds, seconds });
  report["wal"] = figures;
  printTable(
    "The log: 256-byte entries, each append durable before the next",
    ["entries an append", "ours/s", "raw C/s", "ratio", "raw p50, us"],
    figures.map(({ batch, appendsPerSecond: ours, ceilingPerSecond: raw, ceilingP50Micros }) => [
      String(batch),
      ours,
      raw ?? "n/a",
      raw === undefined ? "n/a" : ours / raw,
      ceilingP50Micros ?? "n/a",
    ]),
  );
  for (const { batch, appendsPerSecond, ceilingPerSecond } of figures) {
    if (ceilingPerSecond === undefined) continue;
    const name = `WAL append against raw C, ${batch} ${batch === 1 ? "entry" : "entries"}`;
    verdicts.push(atLeast(name, appendsPerSecond / ceilingPerSecond, 0.8, "x"));
  }
}

/** Both stores run throughout, so that other load on the machine affects both. */
async function againstPeer(): Promise<void> {
  const clusters = [heddle()];
  if (version)
    clusters.push(new StoreCluster(etcdStore(join(folder, "etcd"), etcdPort), logFolder));
  for (const cluster of clusters) await cluster.start();
  if (wants("throughput")) await throughput(clusters);
  if (wants("failover")) await failover(clusters);
  for (const cluster of clusters) await cluster.stop();
}

async function throughput(clusters: readonly StoreCluster[]): Promise<void> {
  const asked = options["concurrency"] && numberList(options["concurrency"]);
  const workloads = WORKLOADS.filter((load) => !asked || asked.includes(load.concurrency));
  const results = await measureConsensusThroughput(clusters, workloads, {
    rounds,
    seconds,
    logFolder,
  });
  report["throughput"] = results;
  printThroughput(results);
  verdicts.push(...judgeThroughput(results));
}

function printThroughput(results: readonly ConsensusThroughput[]): void {
  printTable(
    "Puts of 256 bytes and linearizable reads, three members on one core, medians",
    ["load", "calls/s", "p50, ms", "p99, ms", "CPU a call, us", "clients' core", "failed"],
    results.map(({ store, op, concurrency, perSecond, p50Ms, p99Ms, ...rest }) => [
      `${store}, ${op}, ${concurrency} at once`,
      perSecond,
      p50Ms,
      p99Ms,
      rest.cpuMicrosPerCall,
      rest.clientCpuShare,
      rest.failures,
    ]),
  );
}

async function failover(clusters: readonly StoreCluster[]): Promise<void> {
  const times = new Map(clusters.map(({ name }) => [name, { kill: [], transfer: [] } as Times]));
  for (let turn = 1; turn <= failovers; turn++) {
    for (const cluster of clusters) {
      const of = times.get(cluster.name) as Times;
      of.kill.push(await measureFailover(cluster));
      of.transfer.push(await measureTransfer(cluster));
      const [kill, transfer] = [of.kill.at(-1) ?? 0, of.transfer.at(-1) ?? 0];
      console.log(
        `failover ${turn}: ${cluster.name}: ${Math.round(kill)} ms after kill -9, ${Math.round(transfer)} ms planned`,
      );
    }
  }
  report["failover"] = Object.fromEntries(times);
  const rows = [...times].flatMap(([store, { kill, transfer }]) => [
    { name: `${store}, kill -9 of the leader`, ...summarizeSamples(kill) },
    { name: `${store}, planned transfer`, ...summarizeSamples(transfer) },
  ]);
  printTable(
    "Until a put is answered again, ms",
    ["what", "times", "p50", "p99", "max"],
    rows.map(({ name, count, p50, p99, max }) => [name, count, p50, p99, max]),
  );
  const p99 = (store: string, what: keyof Times) =>
    summarizeSamples(times.get(store)?.[what] ?? []).p99;
  verdicts.push(atMost("planned transfer p99, ms", p99("heddle", "transfer"), 150));
  if (version) {
    const peer = p99("etcd", "kill");
    verdicts.push(atMost("failover p99, ms (etcd's)", p99("heddle", "kill"), peer));
  }
}

interface Times {
  readonly kill: number[];
  readonly transfer: number[];
}

async function alone(): Promise<void> {
  const cluster = heddle();
  await cluster.start();
  if (wants("blocked")) await blocked(cluster);
  if (wants("elections")) await elections(cluster);
  await cluster.stop();
}

/** Only elections raise terms, so the difference counts them. */
async function termOf(cluster: StoreCluster): Promise<number> {
  const views = await cluster.views();
  return Math.max(...[...views.values()].map(({ term }) => term));
}

async function blocked(cluster: StoreCluster): Promise<void> {
  const leader = await cluster.leader();
  const before = await termOf(cluster);
  // The answer arrives when the thread is free again.
  await queryMember(cluster.kind.address(leader), `block ${blockedMs}`).catch(() => undefined);
  await cluster.leader();
  const count = (await termOf(cluster)) - before;
  report["electionsWhileBlocked"] = count;
  verdicts.push(
    atMost(`elections while the leader's main thread is blocked ${blockedMs} ms`, count, 0),
  );
}

async function elections(cluster: StoreCluster): Promise<void> {
  const before = await termOf(cluster);
  const load = await runConsensusLoad(
    cluster,
    { op: "put", concurrency: 128 },
    minutes * 60,
    logFolder,
  );
  const count = (await termOf(cluster)) - before;
  report["elections"] = { minutes, count, load };
  const rate = formatNumber(load.perSecond);
  console.log(`${minutes} min of puts, 128 at once: ${rate}/s, ${load.failures} failed`);
  verdicts.push(atMost(`spurious elections in ${minutes} min, 128 at once`, count, 0));
}

async function snapshot(): Promise<void> {
  const figures = await measureSnapshotStall();
  report["snapshot"] = figures;
  const { records, bytes, beginMs, longestPieceMs, p99PieceMs, longestPieceCpuMs } = figures;
  printTable(
    "A snapshot of a large control state: how long it holds the main thread, ms",
    ["records", "MiB", "the call", "a piece, p99", "longest piece", "of CPU"],
    [[records, bytes / 2 ** 20, beginMs, p99PieceMs, longestPieceMs, longestPieceCpuMs]],
  );
  verdicts.push(atMost("snapshot holds the loop, ms", Math.max(beginMs, longestPieceMs), 20));
}

async function restart(): Promise<void> {
  const logFile = join(logFolder, "restart.log");
  const tookMs = await measureRestart(
    join(folder, "restart"),
    heddlePort + 10,
    restartEntries,
    logFile,
  );
  report["restartMs"] = tookMs;
  verdicts.push(
    atMost(`restart with ${restartEntries} entries and a snapshot, s`, tookMs / 1000, 10),
  );
}

async function http(): Promise<void> {
  const results = await measureHttpWrites([1, 16], seconds);
  report["http"] = results;
  printTable(
    "Whole masters, POST /api/v1/keys over HTTP, on all cores",
    ["at once", "changes/s", "p50, ms", "p99, ms"],
    results.map(({ concurrency, perSecond, p50Ms, p99Ms }) => [
      String(concurrency),
      perSecond,
      p50Ms,
      p99Ms,
    ]),
  );
}

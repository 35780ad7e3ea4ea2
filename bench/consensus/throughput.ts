import { fileURLToPath } from "node:url";
import { Child } from "../support/child-process.ts";
import { repositoryRoot } from "../support/command-line.ts";
import { median } from "../support/statistics.ts";
import type { KvLoadResult } from "./load.ts";
import { clientCore, type StoreCluster } from "./store-cluster.ts";

/** One kind of load: an operation and the number of concurrent clients. */
export interface ConsensusLoad {
  readonly op: "put" | "read";
  readonly concurrency: number;
}

/** A store's results under a workload, medians over the rounds. */
export interface ConsensusThroughput extends ConsensusLoad {
  readonly store: string;
  readonly perSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly cpuMicrosPerCall: number;
  readonly clientCpuShare: number;
  readonly failures: number;
  readonly rounds: readonly KvLoadResult[];
}

const warmupSeconds = 3;
const program = fileURLToPath(new URL("./load.ts", import.meta.url));

/**
 * Each round visits every store once under each workload, in alternating order, so that drift of
 * the machine affects all.
 */
export async function measureConsensusThroughput(
  clusters: readonly StoreCluster[],
  workloads: readonly ConsensusLoad[],
  { rounds, seconds, logFolder }: { rounds: number; seconds: number; logFolder: string },
): Promise<ConsensusThroughput[]> {
  // Warms up JIT-compiled programs before the measurement.
  for (const cluster of clusters) {
    for (const concurrency of [64, 1]) {
      await runConsensusLoad(cluster, { op: "put", concurrency }, warmupSeconds, logFolder);
    }
  }
  const results = new Map<string, { result: KvLoadResult; cpuMicros: number }[]>();
  for (let round = 1; round <= rounds; round++) {
    for (const workload of workloads) {
      for (const cluster of round % 2 === 1 ? clusters : clusters.toReversed()) {
        const cpuBefore = cluster.cpuMs();
        const result = await runConsensusLoad(cluster, workload, seconds, logFolder);
        const cpuMicros = ((cluster.cpuMs() - cpuBefore) * 1000) / result.calls;
        const key = JSON.stringify([cluster.name, workload]);
        results.set(key, [...(results.get(key) ?? []), { result, cpuMicros }]);
        const { op, concurrency } = workload;
        const rate = Math.round(result.perSecond);
        console.log(`round ${round}: ${cluster.name}, ${op}, ${concurrency} at once: ${rate}/s`);
      }
    }
  }
  return [...results].map(([key, runs]) => {
    const [store, workload] = JSON.parse(key) as [string, ConsensusLoad];
    const of = (figure: (run: KvLoadResult) => number) =>
      median(runs.map(({ result }) => figure(result)));
    return {
      store,
      ...workload,
      perSecond: of((run) => run.perSecond),
      p50Ms: of((run) => run.p50Ms),
      p99Ms: of((run) => run.p99Ms),
      cpuMicrosPerCall: median(runs.map(({ cpuMicros }) => cpuMicros)),
      clientCpuShare: of((run) => run.clientCpuShare),
      failures: runs.reduce((sum, { result }) => sum + result.failures, 0),
      rounds: runs.map(({ result }) => result),
    };
  });
}

/** Runs the clients in a process of their own against the leader. */
export async function runConsensusLoad(
  cluster: StoreCluster,
  { op, concurrency }: ConsensusLoad,
  seconds: number,
  logFolder: string,
): Promise<KvLoadResult> {
  const address = cluster.kind.address(await cluster.leader());
  const child = new Child({
    name: "clients",
    command: process.execPath,
    args: [
      program,
      "--store",
      cluster.name,
      "--address",
      address,
      "--op",
      op,
      "--concurrency",
      String(concurrency),
      "--seconds",
      String(seconds),
    ],
    core: clientCore,
    cwd: repositoryRoot,
    logFile: `${logFolder}/clients.log`,
  });
  const [line] = await child.line(/^\{.*\}$/, (seconds + 30) * 1000);
  await child.ended();
  return JSON.parse(line) as KvLoadResult;
}

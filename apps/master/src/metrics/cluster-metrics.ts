import type { ClusterMetricsReply } from "@heddle/contracts/cluster";
import { stateUse } from "@heddle/control/state-limits";
import type { ControlGroup } from "../control-plane/control-group.ts";
import type { ControlPlane } from "../control-plane/control-plane.ts";
import { clusterResources } from "../nodes/cluster-resources.ts";
import { distinctGpus } from "../nodes/hosts.ts";
import type { NodeDirectory, NodeView } from "../nodes/node-directory.ts";
import type { JobFigures } from "./job-figures.ts";
import type { Throughput } from "./throughput.ts";

export interface ClusterMetricsParts {
  readonly control: ControlPlane;
  readonly directory: NodeDirectory;
  readonly throughput: Throughput;
  readonly masterId: string;
  /** Calls that wait on this master for a replica. */
  readonly queued: () => number;
  readonly jobs: JobFigures;
}

export type ClusterFigures = Omit<ClusterMetricsReply, "raft">;

function isRefusing({ refusesLeader }: NodeView): boolean {
  return refusesLeader !== undefined;
}

/** Each kind of record's use of its limit. */
function stateFigures({ state }: ControlPlane): ClusterMetricsReply["state"] {
  const kinds = Object.entries(stateUse(state));
  return Object.fromEntries(
    kinds.map(([kind, { bytes, limit }]) => [kind, { bytes, limit_bytes: limit }]),
  );
}

/** The cluster's present values, for GET /cluster/metrics and /metrics. */
export class ClusterMetrics {
  readonly #parts: ClusterMetricsParts;

  constructor(parts: ClusterMetricsParts) {
    this.#parts = parts;
  }

  resources() {
    return clusterResources(this.#parts.directory.nodes(), this.#parts.control);
  }

  async metrics(): Promise<ClusterMetricsReply> {
    return { ...this.figures(), raft: await this.#raft() };
  }

  /** All values except those of the leader. */
  figures(): ClusterFigures {
    const { control, directory, throughput, queued, jobs } = this.#parts;
    const nodes = directory.nodes();
    const rates = throughput.rates();
    const tokens = throughput.tokens();
    const { totals } = clusterResources(nodes, control);
    const replicas = nodes.flatMap((node) => node.replicas);
    const waiting = sum(replicas.map(({ load }) => load.waiting));
    const workers = nodes.filter(({ kind }) => kind === "worker");
    return {
      object: "cluster.metrics",
      timestamp: new Date().toISOString(),
      window_seconds: round(rates.windowSeconds),
      workers: { total: workers.length, by_state: countBy(workers.map(({ state }) => state)) },
      parameter_servers: { total: nodes.length - workers.length },
      nodes_refusing: {
        worker: workers.filter(isRefusing).length,
        parameter_server: nodes.filter((node) => node.kind !== "worker" && isRefusing(node)).length,
      },
      gpus: gpuFigures(nodes, sum(totals.gpus.map(({ in_use }) => in_use))),
      cpu: { cores: totals.cpu_cores.offered, used_cores: totals.cpu_cores.measured },
      memory: {
        total_bytes: totals.memory_bytes.offered,
        used_bytes: totals.memory_bytes.measured,
      },
      replicas: {
        total: replicas.length,
        ready: replicas.filter(({ phase }) => phase === "ready").length,
      },
      requests: { running: sum(replicas.map(({ load }) => load.running)), waiting },
      queues: { dispatch: queued(), engines: waiting },
      tokens: {
        prompt_total: tokens.prompt,
        generated_total: tokens.generated,
        prompt_per_second: round(rates.promptTokensPerSecond),
        generated_per_second: round(rates.generatedTokensPerSecond),
      },
      jobs: jobs.figures(Date.now()),
      state: stateFigures(control),
    };
  }

  async #raft(): Promise<ClusterMetricsReply["raft"]> {
    const { control, masterId, throughput } = this.#parts;
    if (!control.group) return null;
    const status = control.group.status();
    const counts = control.group.counts();
    const { proposalsPerSecond, proposalSeconds } = throughput.rates();
    const leader = status.members.find(({ id }) => id === status.leader)?.name ?? null;
    return {
      answered_by: masterId,
      leader,
      term: status.term,
      commit_index: status.commit,
      applied_index: status.applied,
      proposals_total: counts.proposals,
      proposals_failed: counts.proposalsFailed,
      proposals_per_second: round(proposalsPerSecond),
      apply_latency_ms: proposalSeconds === undefined ? null : round(proposalSeconds * 1000),
      peers: await peerLags(control.group),
    };
  }
}

/** The other masters' lag in entries, from the leader; empty if none answers. */
export async function peerLags(group: ControlGroup): Promise<{ master: string; lag: number }[]> {
  const { members, leader, commit } = group.status();
  const progress = (await group.progress().catch(() => undefined)) ?? [];
  return members.flatMap(({ id, name }) => {
    const match = progress.find((each) => each.id === id)?.match;
    if (id === leader || match === undefined) return [];
    return [{ master: name, lag: Math.max(0, commit - match) }];
  });
}

function gpuFigures(nodes: readonly NodeView[], used: number): ClusterMetricsReply["gpus"] {
  const gpus = distinctGpus(nodes);
  const utilization = sum(gpus.map(({ utilizationPercent }) => utilizationPercent));
  return {
    total: gpus.length,
    simulated: gpus.filter(({ simulated }) => simulated).length,
    used: Math.ceil(used),
    memory_bytes: sum(gpus.map(({ memoryBytes }) => memoryBytes)),
    memory_used_bytes: sum(gpus.map(({ memoryUsedBytes }) => memoryUsedBytes)),
    utilization_percent: gpus.length === 0 ? 0 : round(utilization / gpus.length),
  };
}

function countBy(names: readonly string[]): Record<string, number> {
  const counts: Record<string, number> = { ready: 0, suspect: 0 };
  for (const name of names) counts[name] = (counts[name] ?? 0) + 1;
  return counts;
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

function round(value: number): number {
  return Math.round(value * 1000) / 1000;
}

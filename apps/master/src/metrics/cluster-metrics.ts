import { SharedRun } from "@heddle/base/async/shared-run";
import type { StepQueue } from "@heddle/base/async/step-queue";
import type { Steps } from "@heddle/base/async/steps";
import type { ClusterMetricsReply } from "@heddle/contracts/api/cluster";
import { stateUse } from "@heddle/control/state-limits";
import type { ControlGroup } from "../control-plane/control-group.ts";
import type { ControlPlane } from "../control-plane/control-plane.ts";
import type { QueueStats } from "../inference/dispatch/inference-port.ts";
import { clusterResources } from "../nodes/cluster-resources.ts";
import { type GpuSums, sumDistinctGpus } from "../nodes/hosts.ts";
import type { NodeDirectory } from "../nodes/node-directory.ts";
import type { JobFigures } from "./job-figures.ts";
import { countNodes } from "./node-counts.ts";
import type { Throughput } from "./throughput.ts";

export interface ClusterMetricsParts {
  readonly control: ControlPlane;
  readonly directory: NodeDirectory;
  readonly throughput: Throughput;
  readonly masterId: string;
  /** Calls that wait on this master for a replica. */
  readonly queues: () => readonly QueueStats[];
  readonly jobs: JobFigures;
  /** Runs the views of the cluster, one at a time. */
  readonly views: StepQueue;
}

export type ClusterFigures = Omit<ClusterMetricsReply, "raft">;

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
  readonly #figures: SharedRun<ClusterFigures>;

  constructor(parts: ClusterMetricsParts) {
    this.#parts = parts;
    this.#figures = new SharedRun(parts.views, (inSteps) => inSteps(() => this.#read()));
  }

  async metrics(): Promise<ClusterMetricsReply> {
    return { ...(await this.figures()), raft: await this.#raft() };
  }

  /** All values except those of the leader. */
  figures(): Promise<ClusterFigures> {
    return this.#figures.get();
  }

  *#read(): Steps<ClusterFigures> {
    const { control, directory, throughput, queues, jobs } = this.#parts;
    const nodes = directory.nodes();
    yield* throughput.count();
    const rates = throughput.rates();
    const tokens = throughput.tokens();
    const totals = yield* clusterResources(nodes, control);
    const counts = yield* countNodes(nodes);
    const used = sum(totals.gpus.map(({ in_use }) => in_use));
    return {
      object: "cluster.metrics",
      timestamp: new Date().toISOString(),
      window_seconds: round(rates.windowSeconds),
      workers: { total: counts.workers, by_state: counts.workersByState },
      parameter_servers: { total: nodes.length - counts.workers },
      nodes_refusing: counts.refusing,
      gpus: gpuFigures(yield* sumDistinctGpus(nodes), used),
      cpu: { cores: totals.cpu_cores.offered, used_cores: totals.cpu_cores.measured },
      memory: {
        total_bytes: totals.memory_bytes.offered,
        used_bytes: totals.memory_bytes.measured,
      },
      replicas: { total: counts.replicas, ready: counts.readyReplicas },
      requests: { running: counts.running, waiting: counts.waiting },
      queues: queueFigures(queues(), counts.waiting),
      tokens: {
        prompt_total: tokens.prompt,
        generated_total: tokens.generated,
        prompt_per_second: round(rates.promptTokensPerSecond),
        generated_per_second: round(rates.generatedTokensPerSecond),
      },
      jobs: yield* jobs.figures(Date.now()),
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

/** Queues that a reply lists. */
const MAX_QUEUES = 100;

function queueFigures(
  queues: readonly QueueStats[],
  engines: number,
): ClusterMetricsReply["queues"] {
  const longest = queues.toSorted((a, b) => b.waiting - a.waiting).slice(0, MAX_QUEUES);
  return {
    dispatch: sum(queues.map(({ waiting }) => waiting)),
    engines,
    models: longest.map(({ deployment, waiting, byPriority, longestWaitMs }) => ({
      deployment,
      waiting,
      by_priority: byPriority,
      longest_wait_ms: Math.round(longestWaitMs),
    })),
  };
}

function gpuFigures(gpus: GpuSums, used: number): ClusterMetricsReply["gpus"] {
  const { count, simulated, memoryBytes, memoryUsedBytes, utilizationPercent } = gpus;
  return {
    total: count,
    simulated,
    used: Math.ceil(used),
    memory_bytes: memoryBytes,
    memory_used_bytes: memoryUsedBytes,
    utilization_percent: count === 0 ? 0 : round(utilizationPercent / count),
  };
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

function round(value: number): number {
  return Math.round(value * 1000) / 1000;
}

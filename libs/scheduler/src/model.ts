/**
 * The input and output of the scheduler, all plain immutable data.
 *
 * - Times are milliseconds since the Unix epoch.
 * - GPU amounts are thousandths of one device (`milli`).
 * - Memory is in MiB, storage in GB.
 */

import type { PlanEntry } from "./plan-entry.ts";

/** Consumable amounts of a node besides its GPUs. */
export interface NodeScalars {
  readonly cpuMilli: number;
  readonly memoryMib: number;
  readonly localSsdGb: number;
  readonly ioOperationsPerSec: number;
  readonly networkMbps: number;
  /** Places for tasks: each takes one, however little else it requests. */
  readonly tasks: number;
}

/** The places of a node that sets no limit; an integer, so that sums over all nodes are exact. */
export const UNLIMITED_TASKS = 1_000_000_000;

/** One GPU; a quarantined one keeps its index and offers nothing. */
export interface DeviceSnapshot {
  readonly healthy: boolean;
}

/** A node in the replicated state: its capacity, not what is free. */
export interface NodeSnapshot {
  readonly id: string;
  /** `ready` accepts new tasks; the other states only keep running ones. */
  readonly state: "ready" | "draining" | "drained" | "lost";
  readonly gpuType: string;
  readonly gpuMemoryGb: number;
  /** Indexed by device index. */
  readonly devices: readonly DeviceSnapshot[];
  readonly capacity: NodeScalars;
  readonly labels: Readonly<Record<string, string>>;
  /** Taint names; a task may run here only if it tolerates each of them. */
  readonly taints: readonly string[];
  /** Empty if the node's rack is unknown. */
  readonly rack: string;
  /** The InfiniBand fabric of the node; empty if it has none. */
  readonly fabric: string;
}

/** One label test, as in Kubernetes' match expressions. */
export interface LabelSelector {
  readonly key: string;
  readonly operator: "in" | "not_in" | "exists" | "not_exists";
  /** Unused by `exists` and `not_exists`. */
  readonly values: readonly string[];
}

/** The requirements of one task of a job; all tasks of a job are alike. */
export interface TaskRequest {
  /** Whole devices when `gpuMilli` is 1000; exactly 1 when it is a share; 0 for none. */
  readonly gpus: number;
  /** Thousandths of each device, 1..1000; ignored where `gpus` is 0. */
  readonly gpuMilli: number;
  /** The index of the one whole device that it requires; absent accepts any. */
  readonly gpuIndex?: number | undefined;
  /** Accepted device types; empty accepts any. */
  readonly gpuTypes: readonly string[];
  /** The minimum memory of each device; 0 accepts any. */
  readonly gpuMemoryGb: number;
  readonly scalars: NodeScalars;
  /** Every selector must match the node. */
  readonly nodeAffinity: readonly LabelSelector[];
  /** No selector may match the node. */
  readonly nodeAntiAffinity: readonly LabelSelector[];
  /** The node must be on a fabric, and all tasks of the gang on the same one. */
  readonly infiniband: boolean;
  readonly tolerations: readonly string[];
  /** What the node must be able to run; absent requires nothing. */
  readonly offers?: readonly NeededOffer[] | undefined;
  /** Ids of nodes that filters of plugins exclude; absent for none. */
  readonly excludedNodes?: readonly string[] | undefined;
  /** Nodes in the order of plugins' scores: those with a higher rank come before all others. */
  readonly nodeRanks?: readonly NodeRank[] | undefined;
  /** Tasks of one gang go to different nodes; only for tasks with GPUs. */
  readonly onePerNode?: true | undefined;
}

/** The rank of a node; one without is of rank 0. */
export interface NodeRank {
  readonly nodeId: string;
  /** A whole number from 0 to MAX_NODE_RANK. */
  readonly rank: number;
}

/** The number of ranks: sums with a node's score are exact. */
export const MAX_NODE_RANK = 100_000;

/** An executor, algorithm, profile or feature that nodes offer, each under its own label. */
export interface NeededOffer {
  readonly kind: "executor" | "algorithm" | "profile" | "feature";
  readonly name: string;
  /** Before the name: a node that has this label offers it. */
  readonly labelPrefix: string;
}

/** Cluster-wide resources that a gang requests. */
export interface SharedRequest {
  /** The size of the shared storage, in MB (10^6 bytes). */
  readonly storageMb: number;
  /** Shards, each on any parameter server. */
  readonly shards: number;
  /** Places of a shard, all on its server; at least 1. */
  readonly placesPerShard: number;
}

/** Amounts of cluster-wide resources: the total, what is free, or what a gang holds. */
export interface SharedAmounts {
  /** The size of the shared storage, in MB (10^6 bytes). */
  readonly storageMb: number;
  /** Places for shards, by the parameter server's id, in the order of the ids. */
  readonly places: ReadonlyMap<string, number>;
}

/** The total of the shared amounts, and what running jobs leave free. */
export interface SharedSupply {
  readonly limit: SharedAmounts;
  readonly free: SharedAmounts;
}

export type QosLevel = "guaranteed" | "standard" | "best_effort";

/** The common fields of queued and running jobs. */
export interface JobTraits {
  readonly project: string;
  readonly queue: string;
  readonly kind: "training" | "serving";
  readonly qosLevel: QosLevel;
  /** Higher is scheduled first within the same qos level and kind; -1,000..1,000. */
  readonly priority: number;
  readonly preemptible: boolean;
  /** The gang: this many alike tasks start together or not at all. */
  readonly tasks: number;
  readonly request: TaskRequest;
}

export interface QueuedJob extends JobTraits {
  /** At most once in the queue. */
  readonly entry: PlanEntry;
  /** The cluster-wide resources of the whole gang; absent for none. */
  readonly shared?: SharedRequest | undefined;
  readonly submittedAtMs: number;
  /** The job's own bound; the settings' jobTimeoutMs caps it. Absent for serving: no end. */
  readonly maxRuntimeMs?: number | undefined;
  /** Ids of jobs that must succeed first. */
  readonly waitingFor: readonly string[];
  /** Retry backoff: no start before this time. */
  readonly notBeforeMs: number;
  /** All tasks in one rack. */
  readonly sameRack: boolean;
  /**
   * Tasks that join a running job. The job already counts in the queue and among the running jobs.
   */
  readonly joinsRunning?: boolean | undefined;
  /** The start that an earlier plan reserved. */
  readonly reservedStartMs?: number | undefined;
  /** The rank from an earlier plan; ranked jobs precede unranked ones of their level. */
  readonly reservationRank?: number | undefined;
}

/**
 * The placement of one task; `devices` are indexes on the node, each holding `gpuMilli` of the
 * request.
 */
export interface TaskPlacement {
  readonly nodeId: string;
  readonly devices: readonly number[];
}

export interface RunningJob extends JobTraits {
  /** The job's ID, or one unique to the replica. */
  readonly id: string;
  /** The cluster-wide resources that the gang holds; absent for none. */
  readonly shared?: SharedAmounts | undefined;
  readonly placements: readonly TaskPlacement[];
  readonly startedAtMs: number;
  /** The latest durable checkpoint; the start of the job if there is none. */
  readonly checkpointedAtMs: number;
  readonly maxRuntimeMs?: number | undefined;
  /** The end that its progress predicts; only estimates use it, never a reservation. */
  readonly expectedEndMs?: number | undefined;
  /** Set during the checkpoint before an eviction. */
  readonly evicting?:
    | { readonly forEntry?: PlanEntry | undefined; readonly byMs: number }
    | undefined;
}

/** Absent limits are unlimited. Serving and training count alike. */
export interface ProjectQuota {
  readonly gpuMilli?: number | undefined;
  /** Per accounting window; a start is charged its whole runtime bound. */
  readonly gpuHours?: number | undefined;
  readonly queueLength?: number | undefined;
}

export interface ProjectState {
  readonly project: string;
  /** Fair-share weight, > 0. */
  readonly weight: number;
  readonly quota: ProjectQuota;
  /** GPU-hours used in the current window by ended and running jobs. */
  readonly usedGpuHours: number;
  /** The end of the window, which resets the use; absent if it has no end. */
  readonly windowEndsMs?: number | undefined;
  /** Decayed past use, from `decayedUsage`. */
  readonly usage: DecayedUsage;
}

/** Resource-milliseconds, halved every half-life. */
export interface DecayedUsage {
  readonly gpuMilliMs: number;
  readonly cpuMilliMs: number;
  readonly memoryMibMs: number;
  readonly asOfMs: number;
}

/** An immutable view of the cluster at one log index. */
export interface ClusterSnapshot {
  /** The Raft index of the snapshot; the plan carries it so that apply can refuse a stale one. */
  readonly index: number;
  readonly nodes: readonly NodeSnapshot[];
  readonly running: readonly RunningJob[];
  readonly projects: readonly ProjectState[];
  /** Absent if there are no shared resources. */
  readonly shared?: SharedSupply | undefined;
}

export type Strategy = "binpack" | "spread" | "fragmentation";

/** A kind of task that the cluster expects and its frequency, from the recent workload. */
export interface WorkloadTarget {
  readonly gpus: number;
  readonly gpuMilli: number;
  readonly gpuTypes: readonly string[];
  readonly cpuMilli: number;
  /** Relative frequency, > 0; the sum need not be 1. */
  readonly weight: number;
}

export interface SchedulerSettings {
  readonly maxConcurrentJobs: number;
  /** CPU offered per CPU present, >= 1; GPUs, memory and storage are never overcommitted. */
  readonly overcommitRatio: number;
  /** Bounds every training job without a shorter bound of its own. */
  readonly jobTimeoutMs: number;
  /** The time that a victim has to write its checkpoint. */
  readonly preemptionGraceMs: number;
  readonly fairShareHalfLifeMs: number;
  readonly queues: Readonly<Record<string, { readonly strategy: Strategy }>>;
  /** For queues not named above. */
  readonly defaultStrategy: Strategy;
  /** The mix that `fragmentation` prepares for; if empty, that of the running and queued jobs. */
  readonly targets: readonly WorkloadTarget[];
}

export const DEFAULT_SETTINGS: SchedulerSettings = {
  maxConcurrentJobs: 10_000,
  overcommitRatio: 1,
  jobTimeoutMs: 7 * 24 * 3_600_000,
  preemptionGraceMs: 120_000,
  fairShareHalfLifeMs: 24 * 3_600_000,
  queues: {},
  defaultStrategy: "fragmentation",
  targets: [],
};

export type PendingReason =
  | "QuotaExceeded"
  | "InsufficientGpu"
  | "InsufficientCpu"
  | "InsufficientMemory"
  | "InsufficientLocalSsd"
  | "InsufficientIo"
  | "InsufficientNetwork"
  | "InsufficientTaskPlaces"
  | "InsufficientSharedStorage"
  | "NoNodes"
  | "Fragmented"
  | "TopologyUnavailable"
  | "PriorityBehind"
  | "DependencyWait"
  | "AffinityNoMatch"
  | "ExecutorUnavailable"
  | "AlgorithmUnavailable"
  | "NodesDraining"
  | "NodesLost"
  | "QueueFull"
  | "Backoff"
  | "PreemptionInProgress";

/** One reason why a job cannot start. `resource` names the amount and its unit. */
export interface Blocker {
  readonly reason: PendingReason;
  readonly resource: string;
  readonly requested: number;
  readonly free: number;
  /** The total, quota or setting that bounds `free`. */
  readonly limit: number;
  /** For reasons that exclude nodes: how many of `limit` nodes. */
  readonly rejected?: number | undefined;
  /** If no node offers what the job runs on: its name, and what the nodes do offer. */
  readonly wanted?: string | undefined;
  readonly offered?: readonly string[] | undefined;
  /** Ids of its open dependencies; the first 16. */
  readonly jobs?: readonly string[] | undefined;
}

export interface GangStart {
  readonly entry: PlanEntry;
  /** One entry a task. */
  readonly placements: readonly TaskPlacement[];
  /** True if a job ahead in the queue is still waiting. */
  readonly backfilled: boolean;
  /** Absent for serving. */
  readonly endsByMs?: number | undefined;
}

export interface Preemption {
  readonly victimId: string;
  readonly forEntry: PlanEntry;
  /** GPU-seconds of work since the victim's last checkpoint. */
  readonly lostGpuSeconds: number;
}

/** The job starts no later than this, unless nodes fail or a higher level arrives. */
export interface Reservation {
  readonly entry: PlanEntry;
  readonly startAtMs: number;
  readonly placements: readonly TaskPlacement[];
  /** Its cluster-wide resources. */
  readonly shared?: SharedAmounts | undefined;
}

export interface PendingJob {
  readonly entry: PlanEntry;
  /** Never empty. */
  readonly blockers: readonly Blocker[];
  /** The reservations of the plan before its turn, which it must not delay. */
  readonly reservationsAhead: number;
}

/** The leader's proposal; apply re-checks it with a CapacityBook (capacity-book.ts). */
export interface Plan {
  readonly basedOnIndex: number;
  readonly starts: readonly GangStart[];
  readonly preemptions: readonly Preemption[];
  /** In queue order; no two have places on the same node. */
  readonly reservations: readonly Reservation[];
  /**
   * The entries that keep their rank in the queue until they start, in order. They have a
   * reservation, or are of the level of a later reservation that passes over them.
   */
  readonly ranked: readonly PlanEntry[];
  /** Running jobs past their bound: they fail with DeadlineExceeded. */
  readonly expired: readonly string[];
  readonly pending: readonly PendingJob[];
}

/**
 * What the scheduler reads and what it answers. Everything here is plain immutable data: times are
 * milliseconds since the Unix epoch, GPU amounts are thousandths of one device (`milli`), memory is
 * MiB, storage is GB.
 */

/** Consumable amounts of a node besides its GPUs. */
export interface NodeScalars {
  readonly cpuMilli: number;
  readonly memoryMib: number;
  readonly localSsdGb: number;
  readonly ioOperationsPerSec: number;
  readonly networkMbps: number;
}

/** One GPU; a quarantined one keeps its index and offers nothing. */
export interface DeviceSnapshot {
  readonly healthy: boolean;
}

/** A node as the replicated state knows it: capacity, not what is free. */
export interface NodeSnapshot {
  readonly id: string;
  /** `ready` takes work; the others keep what runs and take nothing new. */
  readonly state: "ready" | "draining" | "drained" | "lost";
  readonly gpuType: string;
  readonly gpuMemoryGb: number;
  /** By device index. */
  readonly devices: readonly DeviceSnapshot[];
  readonly capacity: NodeScalars;
  readonly labels: Readonly<Record<string, string>>;
  /** Taint names; a task lands here only if it tolerates each of them. */
  readonly taints: readonly string[];
  /** Empty where the node's place is unknown. */
  readonly rack: string;
  /** The InfiniBand fabric the node hangs on; empty where it has none. */
  readonly fabric: string;
}

/** One label test, as in Kubernetes' match expressions. */
export interface LabelSelector {
  readonly key: string;
  readonly operator: "in" | "not_in" | "exists" | "not_exists";
  /** Unused by `exists` and `not_exists`. */
  readonly values: readonly string[];
}

/** What one task of a job needs; all tasks of a job are alike. */
export interface TaskRequest {
  /** Whole devices when `gpuMilli` is 1000; exactly 1 when it is a share; 0 for none. */
  readonly gpus: number;
  /** Thousandths of each device, 1..1000; ignored where `gpus` is 0. */
  readonly gpuMilli: number;
  /** The index of the one whole device that it must be; absent takes any. */
  readonly gpuIndex?: number | undefined;
  /** Accepted device types; empty accepts any. */
  readonly gpuTypes: readonly string[];
  /** The least memory of each device; 0 accepts any. */
  readonly gpuMemoryGb: number;
  readonly scalars: NodeScalars;
  /** Every selector must match the node. */
  readonly nodeAffinity: readonly LabelSelector[];
  /** No selector may match the node. */
  readonly nodeAntiAffinity: readonly LabelSelector[];
  /** The node must hang on a fabric, and all tasks of the gang on the same one. */
  readonly infiniband: boolean;
  readonly tolerations: readonly string[];
  /** What the node must be able to run; absent asks for nothing. */
  readonly offers?: readonly NeededOffer[] | undefined;
}

/** Something that nodes offer to run, each under a label of its own. */
export interface NeededOffer {
  readonly kind: "executor" | "algorithm";
  readonly name: string;
  /** Before the name: a node that has this label offers it. */
  readonly labelPrefix: string;
}

/** What a gang asks for that belongs to no node. */
export interface SharedRequest {
  /** Of the shared storage, in MB (10^6 bytes). */
  readonly storageMb: number;
  /** Shards, each on whatever parameter server. */
  readonly shards: number;
  /** Places that a shard takes, all of them on its server; at least 1. */
  readonly placesPerShard: number;
}

/** Amounts of what belongs to no node: what there is, what is free, or what a gang holds. */
export interface SharedAmounts {
  /** Of the shared storage, in MB (10^6 bytes). */
  readonly storageMb: number;
  /** Places for shards, by the parameter server's id, in the order of the ids. */
  readonly places: ReadonlyMap<string, number>;
}

/** What there is of the shared amounts, and what running jobs leave of it. */
export interface SharedSupply {
  readonly limit: SharedAmounts;
  readonly free: SharedAmounts;
}

export type QosLevel = "guaranteed" | "standard" | "best_effort";

/** What queued and running jobs share. */
export interface JobTraits {
  readonly id: string;
  readonly project: string;
  readonly queue: string;
  readonly kind: "training" | "serving";
  readonly qosLevel: QosLevel;
  /** Higher goes first within the same qos level and kind; -1,000..1,000. */
  readonly priority: number;
  readonly preemptible: boolean;
  /** The gang: this many alike tasks start together or not at all. */
  readonly tasks: number;
  readonly request: TaskRequest;
}

export interface QueuedJob extends JobTraits {
  /** What the whole gang takes that belongs to no node; absent for nothing. */
  readonly shared?: SharedRequest | undefined;
  readonly submittedAtMs: number;
  /** The job's own bound; the settings' jobTimeoutMs caps it. Absent for serving: no end. */
  readonly maxRuntimeMs?: number | undefined;
  /** Ids of jobs that must succeed first. */
  readonly waitingFor: readonly string[];
  /** Retry backoff: not before this time. */
  readonly notBeforeMs: number;
  /** All tasks in one rack. */
  readonly sameRack: boolean;
  /**
   * Tasks that join a job which runs already: it has its place in the queue and among the running
   * jobs behind it.
   */
  readonly joinsRunning?: boolean | undefined;
  /** The start that an earlier plan promised. */
  readonly promisedStartMs?: number | undefined;
  /** Where an earlier plan's line has it: it goes before those of its level that have no place. */
  readonly placeInLine?: number | undefined;
}

/** Where one task is; `devices` are indexes on the node, each holding `gpuMilli` of the request. */
export interface TaskPlacement {
  readonly nodeId: string;
  readonly devices: readonly number[];
}

export interface RunningJob extends JobTraits {
  /** What the whole gang holds that belongs to no node; absent for nothing. */
  readonly shared?: SharedAmounts | undefined;
  readonly placements: readonly TaskPlacement[];
  readonly startedAtMs: number;
  /** The latest durable checkpoint; the start where there is none. */
  readonly checkpointedAtMs: number;
  readonly maxRuntimeMs?: number | undefined;
  /** When its progress says it will end; only estimates use it, never a promise. */
  readonly expectedEndMs?: number | undefined;
  /** Set while it checkpoints to leave. */
  readonly evicting?: { readonly forJobId: string; readonly byMs: number } | undefined;
}

/** Absent limits are unlimited. Serving and training count alike. */
export interface ProjectQuota {
  readonly gpuMilli?: number | undefined;
  /** Per accounting window; a start is charged with its whole bound. */
  readonly gpuHours?: number | undefined;
  readonly queueLength?: number | undefined;
}

export interface ProjectState {
  readonly project: string;
  /** Fair-share weight, > 0. */
  readonly weight: number;
  readonly quota: ProjectQuota;
  /** GPU-hours used up in the current window by jobs that ended or ran so far. */
  readonly usedGpuHours: number;
  /** When the window ends and nothing is used up any more; absent where it has no end. */
  readonly windowEndsMs?: number | undefined;
  /** Decayed past use, as `decayedUsage` keeps it. */
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
  /** The Raft index this was read at; the plan carries it so that apply can refuse a stale one. */
  readonly index: number;
  readonly nodes: readonly NodeSnapshot[];
  readonly running: readonly RunningJob[];
  readonly projects: readonly ProjectState[];
  /** Absent where there is nothing shared. */
  readonly shared?: SharedSupply | undefined;
}

export type Strategy = "binpack" | "spread" | "fragmentation";

/** One kind of task the cluster expects, and how often; from the recent workload. */
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
  /** Bounds every training job that has no shorter bound of its own. */
  readonly jobTimeoutMs: number;
  /** How long a victim may take to write its checkpoint. */
  readonly preemptionGraceMs: number;
  readonly fairShareHalfLifeMs: number;
  readonly queues: Readonly<Record<string, { readonly strategy: Strategy }>>;
  /** For queues not named above. */
  readonly defaultStrategy: Strategy;
  /** The mix that `fragmentation` prepares for; empty learns it from the running and queued jobs. */
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

/** One thing that keeps a job from starting. `resource` names the amount and its unit. */
export interface Blocker {
  readonly reason: PendingReason;
  readonly resource: string;
  readonly requested: number;
  readonly free: number;
  /** The total, quota or setting that bounds `free`. */
  readonly limit: number;
  /** Where nodes do not come into question at all: how many of `limit` nodes for this reason. */
  readonly rejected?: number | undefined;
  /** Where no node offers what the job runs by: its name, and what the nodes do offer. */
  readonly wanted?: string | undefined;
  readonly offered?: readonly string[] | undefined;
  /** Ids of the jobs that it waits for; the first 16. */
  readonly jobs?: readonly string[] | undefined;
}

export interface GangStart {
  readonly jobId: string;
  /** One entry a task. */
  readonly placements: readonly TaskPlacement[];
  /** True where a job that stood ahead is still waiting. */
  readonly backfilled: boolean;
  /** Absent for serving. */
  readonly endsByMs?: number | undefined;
}

export interface Preemption {
  readonly victimId: string;
  readonly forJobId: string;
  /** GPU-seconds of work since the victim's last checkpoint. */
  readonly lostGpuSeconds: number;
}

/** A promise: the job starts no later than this unless nodes fail or a higher level comes. */
export interface Reservation {
  readonly jobId: string;
  readonly startAtMs: number;
  readonly placements: readonly TaskPlacement[];
  /** What it is to hold that belongs to no node. */
  readonly shared?: SharedAmounts | undefined;
}

export interface PendingJob {
  readonly jobId: string;
  /** Never empty. */
  readonly blockers: readonly Blocker[];
  /** How many of the plan's promises were made before its turn, which it must not delay. */
  readonly reservationsAhead: number;
}

/** What the leader proposes; apply re-checks it with a CapacityBook (capacity-book.ts). */
export interface Plan {
  readonly basedOnIndex: number;
  readonly starts: readonly GangStart[];
  readonly preemptions: readonly Preemption[];
  /** In the order of the queue; no two have places on the same node. */
  readonly reservations: readonly Reservation[];
  /**
   * The jobs that keep their places in the queue until they start, in order: those with a promise,
   * and those of the same level that a promise behind them passes over.
   */
  readonly rankedJobs: readonly string[];
  /** Running jobs past their bound: they fail with DeadlineExceeded. */
  readonly expired: readonly string[];
  readonly pending: readonly PendingJob[];
}

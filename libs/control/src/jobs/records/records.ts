import type { FailureReason, JobState, SubmitJob } from "@heddle/contracts/api/job-spec";
import type { DeploymentSpec } from "@heddle/contracts/engine";
import type { PlanEntry } from "@heddle/scheduler/plan-entry";

/**
 * The replicated records of jobs, nodes, projects and queues.
 * - All are immutable JSON. A change hashes the whole record, so records are small.
 * - Constant parts (the spec) and parts that change separately (tasks) have their own records.
 * - Times are milliseconds since the Unix epoch, from the log.
 */

/** The mutable part of a job. Its spec is in `specs` under the same id. */
export interface JobRecord {
  readonly id: string;
  readonly name: string;
  readonly project: string;
  readonly queue: string;
  readonly state: JobState;
  /** The log index of its submission: jobs are ordered by it. */
  readonly submittedIndex: number;
  readonly submittedAtMs: number;
  /** The log index of its latest change: its ETag. */
  readonly changedIndex: number;
  /** When the state was entered. */
  readonly sinceMs: number;
  /** Tasks of the gang; derived from the nodes until the first start if the spec sets none. */
  readonly tasks: number;
  /** The fencing token: 0 before the first reservation; each reservation increments it. */
  readonly attempt: number;
  /** Failures of its own; each uses one of `retry_limit`. */
  readonly failures: number;
  /** Lost nodes and unhealthy devices; they use no retry. */
  readonly losses: number;
  /** Lost nodes in a row without progress between them; absent before the first. */
  readonly idleLosses?: IdleLosses | undefined;
  readonly preemptions: number;
  /** Tasks of any attempt that may run or hold devices; no start while there are any. */
  readonly liveTasks: number;
  /** When the present attempt started running. */
  readonly startedAtMs?: number | undefined;
  /** When the first attempt started running. */
  readonly firstStartedAtMs?: number | undefined;
  readonly endedAtMs?: number | undefined;
  /** When the present state times out: acknowledgement, grace period. */
  readonly dueMs?: number | undefined;
  /** Backoff: no start before this time. */
  readonly notBeforeMs?: number | undefined;
  /** Why it is leaving or left its place. */
  readonly leaving?: Leaving | undefined;
  /** Since when `failure` is unconfirmed: the loss of another task's node may be its cause. */
  readonly suspectedMs?: number | undefined;
  /** The latest failure until it runs again; on a failed job the one that ended it. */
  readonly failure?: JobFailureRecord | undefined;
  readonly checkpoint?: CheckpointRecord | undefined;
  readonly progress?: ProgressRecord | undefined;
  /** A training job's parameter server for each shard of the latest attempt, by shard. */
  readonly shards?: readonly string[] | undefined;
  /** A succeeded job's registered model, or why there is none. */
  readonly model?:
    | { readonly id: string; readonly atMs: number; readonly fault?: string | undefined }
    | undefined;
  /** The reserved start. */
  readonly reservedStartMs?: number | undefined;
  /** Rank among the reservations of its priority level: the lower, the sooner. */
  readonly reservationRank?: number | undefined;
  /** `reservedStartMs` in records of cluster versions before STANDARD_TERMS. */
  readonly promisedStartMs?: number | undefined;
  /** `reservationRank` in records of cluster versions before STANDARD_TERMS. */
  readonly placeInLine?: number | undefined;
  /** Ids of dependencies that have not succeeded yet. */
  readonly waitingFor: readonly string[];
}

/** Losses without progress, and how far the job was at the latest of them. */
export interface IdleLosses {
  readonly count: number;
  readonly atMs: number;
  readonly step?: number | undefined;
  readonly checkpointAtMs?: number | undefined;
}

export interface Leaving {
  readonly why: "preempt" | "drain" | "suspend";
  /** The entry that takes a preempted job's place. */
  readonly forEntry?: PlanEntry | undefined;
  /** The same in records of cluster versions before PLAN_ENTRIES. */
  readonly forJobId?: string | undefined;
  /** The state that a resume of a suspended job restores, if not `pending`. */
  readonly from?: "accepted" | undefined;
}

/** One failure, as in the job's status and its `failed` event. */
export interface JobFailureRecord {
  readonly reason: FailureReason;
  readonly message: string;
  /** The last attempt's reason, once retries are used up. */
  readonly cause?: FailureReason | undefined;
  readonly exitCode?: number | undefined;
  readonly signal?: string | undefined;
  readonly rank?: number | undefined;
  readonly nodeId?: string | undefined;
  /** The last output lines, oldest first; at most 50. */
  readonly lastLines?: readonly string[] | undefined;
}

/** What a task reports of its attempt, by its node's clock. */
export interface TaskReading {
  readonly atMs: number;
  /** Absent in logs of earlier versions, as are `rank` and `incarnation`. */
  readonly attempt?: number | undefined;
  readonly rank?: number | undefined;
  readonly incarnation?: number | undefined;
  readonly step?: number | undefined;
}

export interface CheckpointRecord extends TaskReading {
  /** As the task named it; empty if only its time is known. */
  readonly name: string;
  readonly attempt: number;
  /**
   * The bytes of all checkpoints that its rank keeps; absent where its worker has not measured
   * them.
   */
  readonly bytes?: number | undefined;
}

/** The latest progress line, reduced to what clients use. */
export interface ProgressRecord extends TaskReading {
  readonly totalSteps?: number | undefined;
  /** 0..1 */
  readonly progress?: number | undefined;
  readonly loss?: number | null | undefined;
  readonly reward?: number | null | undefined;
  readonly stepsPerSecond?: number | undefined;
  readonly tokensPerSecond?: number | undefined;
  readonly backend?: string | undefined;
  readonly device?: string | undefined;
  readonly bytesPushed?: number | undefined;
  /** Further numbers that the program reports, as `entropy`; at most 32. */
  readonly metrics?: Readonly<Record<string, number>> | undefined;
  readonly message?: string | undefined;
}

/**
 * The phase of a task.
 * - `reserved`: it has its place.
 * - `leased`: its worker has acknowledged the lease.
 * - `lost`: its node is lost, and its lease may not have expired.
 * - `exited`: it has certainly ended.
 */
export type TaskPhase =
  | "reserved"
  | "leased"
  | "starting"
  | "running"
  | "stopping"
  | "lost"
  | "exited";

/** One task of an attempt, under `job/attempt/rank`. */
export interface TaskRecord {
  readonly jobId: string;
  readonly attempt: number;
  readonly rank: number;
  /** How often the rank was replaced within its attempt; absent: never. */
  readonly incarnation?: number | undefined;
  /** When it was ordered to run, by the log; only where its job continues without lost tasks. */
  readonly runningAtMs?: number | undefined;
  /** Consecutive crashes of the rank soon after its start; absent: none. */
  readonly earlyCrashes?: number | undefined;
  readonly nodeId: string;
  /** Device indexes on the node, each holding `gpuMilli`. */
  readonly devices: readonly number[];
  /** Thousandths of each device; 0 without devices. */
  readonly gpuMilli: number;
  readonly phase: TaskPhase;
  /** It was asked to stop, so an exit without an error does not end the job. */
  readonly asked?: true | undefined;
  /** `host:port` where the other tasks reach it. */
  readonly rendezvous?: string | undefined;
  readonly exit?: TaskExitRecord | undefined;
}

export interface TaskExitRecord {
  /** Absent for success. */
  readonly reason?: FailureReason | undefined;
  readonly exitCode?: number | undefined;
  readonly signal?: string | undefined;
  readonly message?: string | undefined;
  readonly lastLines?: readonly string[] | undefined;
  readonly endedAtMs: number;
  /** What a succeeded task has left, durable on its node; absent for none. */
  readonly artifacts?: readonly ArtifactRecord[] | undefined;
}

/** A file that a task has left, identified by job, attempt, rank and name. */
export interface ArtifactRecord {
  /** Relative path with `/` as separator. */
  readonly name: string;
  readonly bytes: number;
  /** Lower-case hexadecimal. */
  readonly sha256: string;
  /** The SHA-256 of its pieces' SHA-256s; absent for a single piece and in earlier versions. */
  readonly pieces?: string | undefined;
}

/** What a node offers to jobs, from its registration. */
export interface NodeOffer {
  readonly id: string;
  readonly name: string;
  /** `host:port` of its gRPC server. */
  readonly address: string;
  /** Changes with each start of its process. */
  readonly incarnation: string;
  readonly cpuMilli: number;
  /** Its share of its machine's memory, less what the system and replicas use. */
  readonly memoryMib: number;
  readonly localSsdGb: number;
  readonly ioOperationsPerSec: number;
  readonly networkMbps: number;
  /** Tasks that it takes at a time; absent for no limit, as below the version LIMITED_TASKS. */
  readonly maxTasks?: number | undefined;
  /** Empty without GPUs. */
  readonly gpuType: string;
  readonly gpuMemoryGb: number;
  readonly gpuCount: number;
  /** True for simulated devices. */
  readonly simulated: boolean;
  readonly labels: Readonly<Record<string, string>>;
  readonly taints: readonly string[];
  readonly rack: string;
  readonly fabric: string;
  /** Its executors: `process`, `container`, `training`. */
  readonly executors: readonly string[];
  /** The algorithms of `training` there; absent in the records of earlier versions. */
  readonly algorithms?: readonly string[] | undefined;
  /** The environments of `ppo` there; absent if the worker has not reported them. */
  readonly environments?: readonly string[] | undefined;
  /** Equal for all nodes of a machine; absent if the node does not report it. */
  readonly hostId?: string | undefined;
  /** The control groups that limit it, as a container's; absent for none. */
  readonly limitIds?: readonly string[] | undefined;
  /** The memory that its replicas use beyond the offer; absent for none. */
  readonly replicasMib?: number | undefined;
}

export interface NodeRecord {
  readonly offer: NodeOffer;
  readonly state: "ready" | "draining" | "drained" | "lost";
  /** Its state before it was lost, which its return restores. */
  readonly before?: "ready" | "draining" | "drained" | undefined;
  readonly joinedAtMs: number;
  readonly changedIndex: number;
  readonly lostAtMs?: number | undefined;
  /** The time at which a lost node is expected to be fenced; set until it is. */
  readonly fencedAtMs?: number | undefined;
  /** The log index of such a node's loss. Losses before FENCES_BY_LEADER have none. */
  readonly lostIndex?: number | undefined;
  /** Deadline of the drain. */
  readonly drainByMs?: number | undefined;
  /** Quarantined devices by index. */
  readonly quarantined: readonly QuarantinedDevice[];
  /** The worker's reading by which devices returned to service: an earlier one quarantines none. */
  readonly healthyAsOf?: DeviceReading | undefined;
  /** The same in records of cluster versions before STANDARD_TERMS. */
  readonly wellAsOf?: DeviceReading | undefined;
  /** Replicas of deployed models that hold devices here. */
  readonly serving: readonly ServingHold[];
}

/** A parameter server: it holds shards of training jobs and runs no tasks. */
export interface ServerRecord {
  readonly id: string;
  readonly name: string;
  /** `host:port` of its gRPC server. */
  readonly address: string;
  /** Changes with each start of its process, which loses all shards. */
  readonly incarnation: string;
  readonly state: "ready" | "lost";
  readonly joinedAtMs: number;
  readonly changedIndex: number;
  readonly lostAtMs?: number | undefined;
}

export interface QuarantinedDevice {
  readonly device: number;
  readonly why: string;
  readonly atMs: number;
}

/** Identifies one device reading of a worker. */
export interface DeviceReading {
  /** The incarnation of the worker's process. */
  readonly incarnation: string;
  /** Counts the readings of that process. */
  readonly reading: number;
}

export interface ServingHold {
  readonly deployment: string;
  readonly devices: readonly number[];
}

/** What each replica of a deployment needs of a node, or each stage of one that workers divide. */
export interface ReplicaResources {
  /** Whole devices, at least 1. */
  readonly gpuCount: number;
  /** Accepted device types; empty accepts any. */
  readonly gpuTypes: readonly string[];
  /** The minimum memory of each device; 0 accepts any. */
  readonly gpuMemoryGb: number;
  /** Whether replicas run on CPUs, placed without the scheduler, while no node has GPUs. */
  readonly orCpu?: true | undefined;
}

/** A replica's place from the scheduler, or one for stages of replicas, held until they have left it. */
export interface ReplicaRecord {
  readonly deployment: string;
  readonly nodeId: string;
  /** Empty after a permanent failure. */
  readonly devices: readonly number[];
  readonly grantedAtMs: number;
  /** It is for stages of replicas that workers divide. */
  readonly stage?: true | undefined;
  /** When it first served. */
  readonly readyAtMs?: number | undefined;
  /** Its node's drain deadline has passed: it stops, whether another one is ready or not. */
  readonly evicted?: true | undefined;
  /** Its permanent failure: the deployment gets no other place meanwhile. */
  readonly failure?: ReplicaFailure | undefined;
}

/**
 * The stages of one replica that still need GPUs, each on another of the nodes: all get theirs, or none.
 * The leader knows from a plan how many they are.
 */
export interface StageClaimRecord {
  readonly stages: number;
  /** What the largest of them takes. */
  readonly memoryBytes: number;
  /** First those of the plan, as many as there are stages, then others with the memory. */
  readonly nodes: readonly string[];
}

/** A fault of a replica that a retry cannot fix. */
export interface ReplicaFailure {
  readonly code: string;
  readonly message: string;
  readonly atMs: number;
}

export interface ProjectRecord {
  readonly name: string;
  /** Fair-share weight, > 0. */
  readonly weight: number;
  readonly quota: QuotaRecord;
  readonly usage: UsageRecord;
}

/** Absent limits are unlimited. */
export interface QuotaRecord {
  readonly gpuMilli?: number | undefined;
  readonly gpuHours?: number | undefined;
  readonly queueLength?: number | undefined;
  /** The bytes of all that the project keeps; see project-storage.ts. */
  readonly storageBytes?: number | undefined;
}

/** What a project's jobs hold and have used, up to `asOfMs`. */
export interface UsageRecord {
  readonly asOfMs: number;
  readonly heldGpuMilli: number;
  readonly heldCpuMilli: number;
  readonly heldMemoryMib: number;
  /** Resource-milliseconds, halved every half-life. */
  readonly decayedGpuMilliMs: number;
  readonly decayedCpuMilliMs: number;
  readonly decayedMemoryMibMs: number;
  /** Start of the accounting window and the usage in it, in GPU-milli-milliseconds. */
  readonly windowStartMs: number;
  readonly windowGpuMilliMs: number;
}

export interface QueueRecord {
  readonly name: string;
  readonly strategy: "binpack" | "spread" | "fragmentation";
  /** Maximum number of waiting jobs; absent: no bound of its own. */
  readonly maxLength?: number | undefined;
}

/** An event for watchers; its position is (log index, ordinal). */
export interface EventRecord {
  readonly index: number;
  readonly ordinal: number;
  readonly atMs: number;
  readonly what: JobEventRecord | NodeEventRecord;
}

/** A job has entered a state. Progress makes no event: it would displace the others. */
export interface JobEventRecord {
  readonly type: "job";
  readonly jobId: string;
  readonly project: string;
  readonly state: JobState;
  /** The previous state; absent at submission. */
  readonly from?: JobState | undefined;
  readonly attempt: number;
  readonly failure?: Omit<JobFailureRecord, "lastLines"> | undefined;
  readonly why?: Leaving["why"] | undefined;
}

export interface NodeEventRecord {
  readonly type: "node";
  readonly nodeId: string;
  readonly state: NodeRecord["state"];
  readonly why?: string | undefined;
}

/** The part of a deployment that decides what its replicas hold. */
export interface ScheduledDeployment {
  readonly replicas: number | "every-worker";
  /** Its request to the scheduler; a GPU in `options.device` is requested as well. */
  readonly resources?: ReplicaResources | undefined;
  readonly spec: DeploymentSpec;
}

/** The replicated maps of this part, by name. */
export interface JobsState {
  readonly jobs: Map<string, JobRecord>;
  readonly specs: Map<string, SubmitJob>;
  /** Keyed by `job/attempt/rank`: of live attempts and of each job's latest one. */
  readonly tasks: Map<string, TaskRecord>;
  readonly nodes: Map<string, NodeRecord>;
  readonly projects: Map<string, ProjectRecord>;
  readonly queues: Map<string, QueueRecord>;
  /** Keyed by position, oldest first. */
  readonly events: Map<string, EventRecord>;
  /** Parameter servers by node id. */
  readonly servers: Map<string, ServerRecord>;
  /** Keyed by deployment and node; see `replicaKey`. */
  readonly replicas: Map<string, ReplicaRecord>;
  /** Keyed by deployment. */
  readonly stageClaims: Map<string, StageClaimRecord>;
  /** Keyed by name; read-only here, since other commands change them. */
  readonly settings: ReadonlyMap<string, { readonly value: number }>;
  /** Secrets that jobs may name, by `secretKey`; read-only here. */
  readonly secrets: ReadonlyMap<string, unknown>;
  /** Keyed by key; read-only here. */
  readonly deployments: ReadonlyMap<string, ScheduledDeployment>;
  /** Values of the cluster; read-only here. */
  readonly cluster: ReadonlyMap<string, number | string>;
}

/** The key of a task in `tasks`. */
export function taskKey(jobId: string, attempt: number, rank: number): string {
  return `${jobId}/${attempt}/${rank}`;
}

/** The key of a replica's place in `replicas`: a node runs at most one of a deployment. */
export function replicaKey({
  deployment,
  nodeId,
}: Pick<ReplicaRecord, "deployment" | "nodeId">): string {
  return `${deployment}@${nodeId}`;
}

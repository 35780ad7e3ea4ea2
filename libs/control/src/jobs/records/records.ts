import type { FailureReason, JobState, SubmitJob } from "@heddle/contracts/jobs";

/**
 * The replicated records of jobs, nodes, projects and queues. All are immutable JSON, kept small
 * because each change of one hashes it whole: what never changes (the spec) and what changes apart
 * (tasks) has records of its own. Times are milliseconds since the Unix epoch, from the log.
 */

/** A job as it moves. Its spec is in `specs` under the same id. */
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
  /** Tasks of the gang; follows from the nodes until the first start where the spec names none. */
  readonly tasks: number;
  /** The fencing token: 0 before the first reservation, one more with each. */
  readonly attempt: number;
  /** Failures of its own so far: each uses up one of `retry_limit`. */
  readonly failures: number;
  /** Lost nodes and sick devices so far; they use up no retry. */
  readonly losses: number;
  readonly preemptions: number;
  /** Tasks that may still run or hold devices, of whatever attempt: no start while there are any. */
  readonly liveTasks: number;
  /** When the running of the present attempt began. */
  readonly startedAtMs?: number | undefined;
  /** Of the first attempt that ran. */
  readonly firstStartedAtMs?: number | undefined;
  readonly endedAtMs?: number | undefined;
  /** When the present state ends by itself: acknowledgement, grace. */
  readonly dueMs?: number | undefined;
  /** Backoff: no start before. */
  readonly notBeforeMs?: number | undefined;
  /** Why it leaves or left its place. */
  readonly leaving?: Leaving | undefined;
  /** Since when `failure` waits for word of the other tasks' nodes, one of which may be its cause. */
  readonly suspectedMs?: number | undefined;
  /** The latest failure until it runs again; on a failed job the one that ended it. */
  readonly failure?: JobFailureRecord | undefined;
  readonly checkpoint?: CheckpointRecord | undefined;
  readonly progress?: ProgressRecord | undefined;
  /** Of a training job: ids of the parameter servers that hold its latest attempt's shards, by shard. */
  readonly shards?: readonly string[] | undefined;
  /** Once it has succeeded: the model that it was registered as, or why it was not. */
  readonly model?:
    | { readonly id: string; readonly atMs: number; readonly fault?: string | undefined }
    | undefined;
  /** The start that a plan promised to it. */
  readonly promisedStartMs?: number | undefined;
  /** In the line of those that go before others of their level: the lower, the sooner. */
  readonly placeInLine?: number | undefined;
  /** Ids of dependencies that have not succeeded yet. */
  readonly waitingFor: readonly string[];
}

export interface Leaving {
  readonly why: "preempt" | "drain" | "suspend";
  readonly forJobId?: string | undefined;
  /** On a suspended job: the state that it goes back to, where that is not `pending`. */
  readonly from?: "accepted" | undefined;
}

/** One failure, in the shape that the job's status and its `failed` event show. */
export interface JobFailureRecord {
  readonly reason: FailureReason;
  readonly message: string;
  /** Where retries ran out: the reason of the last attempt. */
  readonly cause?: FailureReason | undefined;
  readonly exitCode?: number | undefined;
  readonly signal?: string | undefined;
  readonly rank?: number | undefined;
  readonly nodeId?: string | undefined;
  /** The last lines of the task's streams, oldest first; at most 50. */
  readonly lastLines?: readonly string[] | undefined;
}

/** What a task tells of its attempt, by the clock of its node. */
export interface TaskReading {
  readonly atMs: number;
  /** Absent in logs of earlier versions, as are `rank` and `incarnation`. */
  readonly attempt?: number | undefined;
  readonly rank?: number | undefined;
  readonly incarnation?: number | undefined;
  readonly step?: number | undefined;
}

export interface CheckpointRecord extends TaskReading {
  /** What the task named it; empty where only its time is known. */
  readonly name: string;
  readonly attempt: number;
}

/** The latest progress line, as far as it is of use to a client. */
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
  /** Further numbers that the program tells, as `entropy`; at most 32. */
  readonly metrics?: Readonly<Record<string, number>> | undefined;
  readonly message?: string | undefined;
}

/**
 * Where a task of an attempt is on its way. `reserved`: has its place; `leased`: its worker has
 * acknowledged; `lost`: its node is lost and its lease may still run; `exited`: it is surely over.
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
  /** When it was told to run, by the log; only where its job goes on without lost tasks. */
  readonly runningAtMs?: number | undefined;
  /** How often in a row the rank was ended by a signal soon after its start; absent: never. */
  readonly earlyCrashes?: number | undefined;
  readonly nodeId: string;
  /** Device indexes on the node, each holding `gpuMilli`. */
  readonly devices: readonly number[];
  /** Thousandths of each device; 0 without devices. */
  readonly gpuMilli: number;
  readonly phase: TaskPhase;
  /** It was asked to leave: then an end without a fault is not the job's end. */
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
  /** What a task that ended well has left, durable on its node; absent where that is nothing. */
  readonly artifacts?: readonly ArtifactRecord[] | undefined;
}

/** A file that a task has left; it is known by its job, attempt, rank and name. */
export interface ArtifactRecord {
  /** Relative, with `/` between folders. */
  readonly name: string;
  readonly bytes: number;
  /** Lower-case hexadecimal. */
  readonly sha256: string;
  /** The SHA-256 of the SHA-256s of its pieces; absent where it is one piece, or of before they were told. */
  readonly pieces?: string | undefined;
}

/** What a node offers to jobs; it says so itself when it attaches. */
export interface NodeOffer {
  readonly id: string;
  readonly name: string;
  /** `host:port` of its gRPC server. */
  readonly address: string;
  /** Changes with each start of its process. */
  readonly incarnation: string;
  readonly cpuMilli: number;
  /** Its share of its machine's memory, without what the system and replicas have. */
  readonly memoryMib: number;
  readonly localSsdGb: number;
  readonly ioOperationsPerSec: number;
  readonly networkMbps: number;
  /** Empty without GPUs. */
  readonly gpuType: string;
  readonly gpuMemoryGb: number;
  readonly gpuCount: number;
  /** True where the devices do not exist. */
  readonly simulated: boolean;
  readonly labels: Readonly<Record<string, string>>;
  readonly taints: readonly string[];
  readonly rack: string;
  readonly fabric: string;
  /** What can run there: `process`, `container`, `training`. */
  readonly executors: readonly string[];
  /** What `training` can run there; absent in the records of earlier versions. */
  readonly algorithms?: readonly string[] | undefined;
  /** What its `ppo` can train in; absent where the worker has not said. */
  readonly environments?: readonly string[] | undefined;
  /** The same on all nodes of a machine; absent where the node does not say. */
  readonly hostId?: string | undefined;
  /** The control groups that bound it, as a container's; absent for none. */
  readonly limitIds?: readonly string[] | undefined;
  /** The memory that its replicas hold beside the offer; absent for none. */
  readonly replicasMib?: number | undefined;
}

export interface NodeRecord {
  readonly offer: NodeOffer;
  readonly state: "ready" | "draining" | "drained" | "lost";
  /** What it was before it was lost, and is again when it comes back. */
  readonly before?: "ready" | "draining" | "drained" | undefined;
  readonly joinedAtMs: number;
  readonly changedIndex: number;
  readonly lostAtMs?: number | undefined;
  /** On a lost node: from here on its tasks are surely over. */
  readonly fencedAtMs?: number | undefined;
  /** While draining: when it must be empty. */
  readonly drainByMs?: number | undefined;
  /** Sick devices by index. */
  readonly quarantined: readonly QuarantinedDevice[];
  /** The worker's word by which devices were taken back: an earlier one takes none out again. */
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
  /** Changes with each start of its process, which has none of the shards of the one before. */
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

/** Which of a worker's readings of its devices a word of them comes from. */
export interface DeviceReading {
  /** Of the worker's process. */
  readonly incarnation: string;
  /** Counts the readings since that process began. */
  readonly reading: number;
}

export interface ServingHold {
  readonly deployment: string;
  readonly devices: readonly number[];
}

/** What each replica of a deployment needs of a node: the scheduler finds it a place. */
export interface ReplicaResources {
  /** Whole devices, at least 1. */
  readonly gpuCount: number;
  /** Accepted device types; empty accepts any. */
  readonly gpuTypes: readonly string[];
  /** The least memory of each device; 0 accepts any. */
  readonly gpuMemoryGb: number;
  /** Whether replicas run on CPUs, placed without the scheduler, as long as no node has GPUs. */
  readonly orCpu?: true | undefined;
}

/** The place that the scheduler gave a replica; held until the replica is gone from it. */
export interface ReplicaRecord {
  readonly deployment: string;
  readonly nodeId: string;
  /** Empty once it has failed for good. */
  readonly devices: readonly number[];
  readonly grantedAtMs: number;
  /** When it was first seen to serve. */
  readonly readyAtMs?: number | undefined;
  /** The time of its node's drain is over: it goes, whether another is up or not. */
  readonly evicted?: true | undefined;
  /** Why it came down and comes up no more: the deployment gets no further place meanwhile. */
  readonly failure?: ReplicaFailure | undefined;
}

/** A fault of a replica that another try cannot mend. */
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
}

/** What a project's jobs hold and have held, up to `asOfMs`. */
export interface UsageRecord {
  readonly asOfMs: number;
  readonly heldGpuMilli: number;
  readonly heldCpuMilli: number;
  readonly heldMemoryMib: number;
  /** Resource-milliseconds, halved every half-life. */
  readonly decayedGpuMilliMs: number;
  readonly decayedCpuMilliMs: number;
  readonly decayedMemoryMibMs: number;
  /** The accounting window and what was used in it, in GPU-milli-milliseconds. */
  readonly windowStartMs: number;
  readonly windowGpuMilliMs: number;
}

export interface QueueRecord {
  readonly name: string;
  readonly strategy: "binpack" | "spread" | "fragmentation";
  /** Jobs that may wait in it; absent: no bound of its own. */
  readonly maxLength?: number | undefined;
}

/** One thing that happened, kept for watchers; its position is (log index, ordinal). */
export interface EventRecord {
  readonly index: number;
  readonly ordinal: number;
  readonly atMs: number;
  readonly what: JobEventRecord | NodeEventRecord;
}

/** A job has entered a state. Progress makes no event: it would drive the others out. */
export interface JobEventRecord {
  readonly type: "job";
  readonly jobId: string;
  readonly project: string;
  readonly state: JobState;
  /** The state before; absent at the submission. */
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

/** A deployment as far as the scheduler's part looks at it. */
export interface ScheduledDeployment {
  readonly replicas: number | "every-worker";
  /** What it asks for of the scheduler; a GPU that `options.device` names is asked for as well. */
  readonly resources?: ReplicaResources | undefined;
  readonly spec: { readonly options: { readonly device?: string | undefined } };
}

/** The replicated maps of this part, by name. */
export interface JobsState {
  readonly jobs: Map<string, JobRecord>;
  readonly specs: Map<string, SubmitJob>;
  /** By `job/attempt/rank`: of live attempts and of each job's latest one. */
  readonly tasks: Map<string, TaskRecord>;
  readonly nodes: Map<string, NodeRecord>;
  readonly projects: Map<string, ProjectRecord>;
  readonly queues: Map<string, QueueRecord>;
  /** By position, oldest first. */
  readonly events: Map<string, EventRecord>;
  /** Parameter servers by node id. */
  readonly servers: Map<string, ServerRecord>;
  /** By deployment and node, as `replicaKey` has it. */
  readonly replicas: Map<string, ReplicaRecord>;
  /** By name, for reading only: other commands change them. */
  readonly settings: ReadonlyMap<string, { readonly value: number }>;
  /** By key, for reading only. */
  readonly deployments: ReadonlyMap<string, ScheduledDeployment>;
}

/** The key of a task in `tasks`. */
export function taskKey(jobId: string, attempt: number, rank: number): string {
  return `${jobId}/${attempt}/${rank}`;
}

/** The key of a replica's place in `replicas`: a node runs one of a deployment at most. */
export function replicaKey({
  deployment,
  nodeId,
}: Pick<ReplicaRecord, "deployment" | "nodeId">): string {
  return `${deployment}@${nodeId}`;
}

import type { AppError } from "@heddle/base/errors";
import type {
  DeploymentSpec,
  EngineEvent,
  GenerateRequest,
  ReplicaStatus,
} from "@heddle/contracts/engine";
import type { ControlCommand, ControlReply } from "@heddle/control/command";
import type { IdempotentRequest, KeptAnswer } from "@heddle/control/idempotency";
import type { JobIndex } from "@heddle/control/jobs/index/job-index";
import type { SessionRequest } from "@heddle/control/sessions";
import type { ControlState } from "@heddle/control/state";
import type { StateKind } from "@heddle/control/state-limits";
import type { Backup } from "./consensus/live-backup.ts";

/** The joints between the master's HTTP side, its dispatch and its replicated state. */

/** The replicated state as this master sees it, and the only way to change it. */
export interface ControlPlane {
  /** Read-only for everyone but the log's apply. */
  readonly state: ControlState;
  /** What follows from the state's jobs; read-only, and another object after a restore. */
  readonly jobs: JobIndex;
  /** The log index up to which the state has come. */
  readonly appliedIndex: number;
  /**
   * Resolves when the command is durable and applied; rejects with an AppError: `outcome_unknown`
   * where nobody can tell whether it was made, any other code where it was not.
   */
  propose(command: ControlCommand, once?: Once): Promise<ControlReply>;
  /** What is remembered of an idempotent request, as far as this master knows. */
  keptAnswer(id: string): KeptAnswer | undefined;
  /**
   * Called after each applied command, and with undefined after the state was replaced as a whole.
   * Returns the unsubscribe function.
   */
  onApplied(listener: (command: ControlCommand | undefined) => void): () => void;
  /** The group of masters that agree on the state, where there is one. */
  readonly group?: ControlGroup | undefined;
  /** Why no command is taken any more, where that is so: then this master is not ready. */
  readonly fault?: AppError | undefined;
  close(): Promise<void>;
}

/** By what a change that comes again is known, so that it is made once; at most one of the two. */
export interface Once {
  readonly session?: SessionRequest | undefined;
  readonly idempotency?: IdempotentRequest | undefined;
}

/** The masters as a group, as this one sees it. */
export interface ControlGroup {
  status(): GroupStatus;
  /** The same, also right after this process was stopped; resolves at once where it was not. */
  statusAfterPauses(): Promise<GroupStatus>;
  /** How far each member is, which only the leader knows; rejects where it does not answer. */
  progress(): Promise<readonly MemberProgress[]>;
  /** Resolves when this master's state holds every change made before the call. */
  readBarrier(): Promise<void>;
  /** Asks for leadership to go to the master of that name, or to any other one. */
  transferLeadership(name: string | undefined): Promise<void>;
  /** Takes a snapshot of this master's state and drops its log before it. */
  takeSnapshot(): Promise<void>;
  removeMember(name: string): Promise<void>;
  /**
   * This master's state as of now or later; `isStale` does without the leader, whose word makes sure
   * that it holds every change that was answered.
   */
  takeBackup(isStale: boolean): Promise<Backup>;
  /** What this master counted since its start. */
  counts(): RaftCounts;
}

/** Figures of a master's replica since its start. */
export interface RaftCounts {
  /** Changes that this master proposed, and those that were not made or not known to be. */
  readonly proposals: number;
  readonly proposalsFailed: number;
  /** Seconds from a proposal to its reply, over those that succeeded. */
  readonly proposalSeconds: number;
  /** Changes that it proposed and that the state had no room for, by the kind of their records. */
  readonly refusedForRoom: Readonly<Record<StateKind, number>>;
  /** Times that it stood for election. */
  readonly elections: number;
  readonly snapshotsTaken: number;
  readonly snapshotsInstalled: number;
  /** Snapshots whose own files could not be read. */
  readonly snapshotsDamaged: number;
  /** Durable writes to the log: by the upper bound in seconds (the last is infinite), and their sum. */
  readonly appends: DurationCounts;
}

/** A histogram: how many durations were at most each bound, and above the one before. */
export interface DurationCounts {
  readonly boundsSeconds: readonly number[];
  /** One more than there are bounds: the last is of those above all. */
  readonly counts: readonly number[];
  readonly sumSeconds: number;
}

export interface GroupStatus {
  readonly cluster: string;
  /** This master's id in the group. */
  readonly id: number;
  readonly role: "leader" | "follower" | "candidate" | "preCandidate";
  /** True for a leader whose state here holds all that earlier leaders have committed: it may decide. */
  readonly leads: boolean;
  readonly term: number;
  /** Undefined while none is known: then changes are refused, and reads may be stale. */
  readonly leader: number | undefined;
  readonly commit: number;
  readonly applied: number;
  readonly snapshotIndex: number;
  /**
   * True where this master has long not applied what it knows to be committed, or was away and has not
   * heard since what is, or was removed: reads may be stale.
   */
  readonly isBehind: boolean;
  /** Commands applied since the cluster began, and a hash of the state that they led to. */
  readonly commands: number;
  readonly stateHash: string;
  /** By whose rules commands are applied, and the highest that this master supports. */
  readonly clusterVersion: number;
  readonly supportedVersion: number;
  readonly members: readonly GroupMember[];
}

export interface GroupMember {
  readonly id: number;
  readonly name: string;
  readonly address: string;
  readonly votes: boolean;
  /** Whether a stream between that master and this one stands. */
  readonly connected: boolean;
}

export interface MemberProgress {
  readonly id: number;
  /** Up to here its log is known to agree with the leader's. */
  readonly match: number;
  /** Whether it answered within the last two election timeouts, or is connected to a new leader. */
  readonly active: boolean;
  /** Whether its log has long lacked what is committed; absent from a master of an earlier version. */
  readonly behind?: boolean | undefined;
}

export interface InferenceCall {
  readonly requestId: string;
  readonly deployment: string;
  readonly request: GenerateRequest;
  /** The API key's id: engines share fairly between these. */
  readonly fairKey: string;
  readonly deadlineMs: number;
  readonly priority: number;
}

/** A started call: which worker answers, and its events. Leaving the iteration cancels the call. */
export interface InferenceAnswer {
  readonly node: string;
  readonly events: AsyncIterable<EngineEvent>;
}

export interface InferenceDispatch {
  /**
   * Picks a replica, waiting in a bounded queue while none can take the call, and resolves with the
   * first event at hand (so that a refusal still has its HTTP status). Retries another replica only
   * before that. Rejects with an AppError: `overloaded` (with retryAfterMs), `model_loading`,
   * `unavailable`, `deadline_exceeded`, `cancelled`, or what the engine refused with.
   */
  start(call: InferenceCall, signal: AbortSignal): Promise<InferenceAnswer>;
}

export interface NodeView {
  readonly id: string;
  readonly kind: "worker" | "parameter-server";
  readonly name: string;
  readonly address: string;
  readonly version: string;
  /** How a worker isolates its tasks; absent or empty where it does not say. */
  readonly taskIsolation?: string | undefined;
  /** Changes with each start of its process. */
  readonly incarnation: string;
  /**
   * `suspect` has missed its last heartbeats and gets no new work; `refusing` does not work for this
   * master's cluster or its leader.
   */
  readonly state: "ready" | "suspect" | "refusing";
  /** Why it is refusing. */
  readonly refusesLeader?: string | undefined;
  readonly attachedAtMs: number;
  readonly lastSeenMs: number;
  /** Of the machine, the same for all nodes on it; absent or empty where it is not known. */
  readonly hostId?: string | undefined;
  /** Of the file system that holds the node's data, among those of its machine. */
  readonly diskId?: string | undefined;
  readonly cpuPercent: number;
  readonly cpuCount: number;
  readonly memoryBytes: number;
  readonly memoryUsedBytes: number;
  /** Of the file system that holds the node's data. */
  readonly diskBytes: number;
  readonly diskUsedBytes: number;
  readonly gpus: readonly GpuView[];
  /** Counts the worker's readings of its devices since its process began: tells which word is later. */
  readonly deviceReadings: number;
  readonly replicas: readonly ReplicaStatus[];
  /** What the control groups around the node allow it; 0 for no bound. */
  readonly limits?: readonly ResourceLimitView[] | undefined;
  /** The memory that the process of a parameter server holds. */
  readonly residentBytes?: number | undefined;
  /** Of a parameter server: what it has not let in since its process began. */
  readonly refusals?: RefusalCounts | undefined;
  /** What it offers to jobs; absent on nodes that run none. */
  readonly offer?: NodeJobOffer | undefined;
}

export interface ResourceLimitView {
  /** The same for all nodes in the group. */
  readonly id: string;
  readonly memoryBytes: number;
  readonly cpuMilli: number;
}

/** What a parameter server has not let in. */
export interface RefusalCounts {
  /** Connections and calls without the token that they need. */
  readonly strangers: number;
  /** Parts and requests that are malformed, hold what is no number, or are of another plan. */
  readonly invalid: number;
  /** What came of attempts that a later one has taken over. */
  readonly stale: number;
}

/** What a worker says of itself, besides its hardware, for jobs to be placed by. */
export interface NodeJobOffer {
  readonly incarnation: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly taints: readonly string[];
  readonly rack: string;
  readonly fabric: string;
  readonly executors: readonly string[];
  /** Training algorithms. */
  readonly algorithms: readonly string[];
  /** What `ppo` can train in; empty on a worker that does not say. */
  readonly environments: readonly string[];
  /** By algorithm of a plugin: the JSON Schema of its config, as the worker wrote it. */
  readonly algorithmSchemas: Readonly<Record<string, string>>;
  readonly localSsdBytes: number;
  readonly ioOperationsPerSec: number;
  readonly networkMbps: number;
}

export interface GpuView {
  readonly index: number;
  readonly uuid: string;
  readonly name: string;
  readonly memoryBytes: number;
  readonly memoryUsedBytes: number;
  readonly utilizationPercent: number;
  readonly temperatureCelsius: number;
  readonly powerWatts: number;
  /** True where the device does not exist. */
  readonly simulated: boolean;
  /** Why it must not be used; empty while it is well. */
  readonly fault: string;
}

export interface PullProgress {
  readonly pulledBytes: number;
  readonly totalBytes: number;
  readonly source: string;
  readonly done: boolean;
}

/** The nodes attached to this master now; volatile, never in the replicated state. */
export interface NodeDirectory {
  nodes(): readonly NodeView[];
  /** For how long this master has not heard of the node; at most since it began, where it never has. */
  silentMs(nodeId: string): number;
  /** Every replica of a deployment, as last reported; costs no look at other nodes. */
  replicasOf(deployment: string): readonly ReplicaStatus[];
  /**
   * Has a worker pull a deployment's weights into its cache, or those workers where it has failed, which
   * then try it anew. Rejects with `unavailable` where no worker is.
   */
  pull(deployment: DeploymentSpec, signal: AbortSignal): AsyncIterable<PullProgress>;
}

/** The injection tokens of the ports, which as interfaces have no value at run time. */
export const CONTROL_PLANE = Symbol("ControlPlane");
export const NODE_DIRECTORY = Symbol("NodeDirectory");

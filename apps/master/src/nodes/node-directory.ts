import type { DeploymentSpec, ReplicaStatus } from "@heddle/contracts/engine";

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
  readonly refusals?: ParameterServerRefusals | undefined;
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
export interface ParameterServerRefusals {
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

/** The port's injection token: as an interface it has no value at run time. */
export const NODE_DIRECTORY = Symbol("NodeDirectory");

import type { DeploymentSpec, ReplicaStatus } from "@heddle/contracts/engine";
import type { Divisions } from "./replicas/divisions.ts";

export interface NodeView {
  readonly id: string;
  readonly kind: "worker" | "parameter-server";
  readonly name: string;
  readonly address: string;
  readonly version: string;
  /** How a worker isolates its tasks; absent or empty if not reported. */
  readonly taskIsolation?: string | undefined;
  /** Changes with each start of its process. */
  readonly incarnation: string;
  /**
   * `suspect`: missed its last heartbeats and gets no new work. `refusing`: does not work for this
   * master's cluster or its leader.
   */
  readonly state: "ready" | "suspect" | "refusing";
  /** Why it is refusing. */
  readonly refusesLeader?: string | undefined;
  /** Why a worker runs no tasks now; undefined if it can. */
  readonly executorFault?: string | undefined;
  readonly attachedAtMs: number;
  readonly lastSeenMs: number;
  /** The machine's id, equal for all nodes on it; absent or empty if unknown. */
  readonly hostId?: string | undefined;
  /** The file system of the node's data, unique within the machine. */
  readonly diskId?: string | undefined;
  readonly cpuPercent: number;
  readonly cpuCount: number;
  readonly memoryBytes: number;
  readonly memoryUsedBytes: number;
  /** Size of that file system. */
  readonly diskBytes: number;
  readonly diskUsedBytes: number;
  readonly gpus: readonly GpuView[];
  /** Number of device readings since the worker's process started, to order reports. */
  readonly deviceReadings: number;
  readonly replicas: readonly ReplicaStatus[];
  /** The limits of the control groups around the node; 0 for none. */
  readonly limits?: readonly ResourceLimitView[] | undefined;
  /** The resident memory of a parameter server's process. */
  readonly residentBytes?: number | undefined;
  /** What a parameter server has refused since its process started. */
  readonly refusals?: ParameterServerRefusals | undefined;
  /** What it offers to jobs; absent on nodes that run none. */
  readonly offer?: NodeJobOffer | undefined;
}

export interface ResourceLimitView {
  /** Equal for all nodes in the group. */
  readonly id: string;
  readonly memoryBytes: number;
  readonly cpuMilli: number;
  /** Its operator's offer, of which nothing is kept for the system. */
  readonly isOffer?: boolean | undefined;
}

/** What a parameter server has refused. */
export interface ParameterServerRefusals {
  /** Connections and calls without the required token. */
  readonly unauthenticated: number;
  /** Parts and requests that are malformed, contain NaN, or belong to another plan. */
  readonly invalid: number;
  /** From attempts that a newer one has replaced. */
  readonly stale: number;
}

/** What a worker reports besides its hardware, for the placement of jobs. */
export interface NodeJobOffer {
  readonly incarnation: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly taints: readonly string[];
  readonly rack: string;
  readonly fabric: string;
  readonly executors: readonly string[];
  /** Training algorithms. */
  readonly algorithms: readonly string[];
  /** The environments of `ppo`; empty if not reported. */
  readonly environments: readonly string[];
  /** Keyed by algorithm of a plugin: the JSON Schema of its config, as the worker sent it. */
  readonly algorithmSchemas: Readonly<Record<string, string>>;
  readonly localSsdBytes: number;
  readonly ioOperationsPerSec: number;
  readonly networkMbps: number;
  /** Undefined if not reported. */
  readonly maxTasks: number | undefined;
  /** The operator chose it; otherwise the workers of a machine divide its places. */
  readonly isMaxTasksChosen: boolean;
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
  /** True for a simulated device. */
  readonly simulated: boolean;
  /** Why it must not be used; empty while it is healthy. */
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
  /** Calls that failed because their worker was lost, since the start. */
  readonly workersLost: number;
  readonly divisions: Pick<Divisions, "of" | "all" | "fresh">;
  /** Time since the node's last report to this master, or since this master started. */
  silentMs(nodeId: string): number;
  /** Every replica of a deployment, as last reported; reads no other node. */
  replicasOf(deployment: string): readonly ReplicaStatus[];
  /**
   * Makes a worker pull a deployment's weights into its cache, or retries on the workers where it
   * has failed. Rejects with `unavailable` if there is no worker.
   */
  pull(deployment: DeploymentSpec, signal: AbortSignal): AsyncIterable<PullProgress>;
}

/** The port's injection token, since an interface has no value at run time. */
export const NODE_DIRECTORY = Symbol("NodeDirectory");

import type { FailureReason } from "@heddle/contracts/api/job-spec";
import type { TaskPlan } from "../../records/task-plan.ts";
import type { ProcessScan } from "./process-scan.ts";

/**
 * The port to whatever runs tasks: processes, containers, training, Pods, or jobs of a batch system.
 * The task table decides when; an executor knows how.
 */
export interface Executor {
  readonly name: string;
  /** Its training algorithms or blocks; absent on an executor that runs programs. */
  readonly algorithms?: readonly string[] | undefined;
  /** Keyed by algorithm of a plugin: the JSON Schema of its config, as JSON. */
  readonly schemas?: Readonly<Record<string, string>> | undefined;
  /** The environments of its `ppo`, likewise. */
  readonly environments?: readonly string[] | undefined;
  /** Its tasks continue while the worker is replaced, until the lease ends. */
  readonly outlivesWorker?: boolean | undefined;
  /** Where the worker's lease is written for programs elsewhere, which end with it. */
  readonly leaseFolder?: string | undefined;
  /** Labels that the node gets. */
  readonly labels?: Readonly<Record<string, string>> | undefined;
  /** Where the task will be for the others; without a port one is held on the worker's machine. */
  taskAddress?(plan: TaskPlan): { readonly host: string; readonly port?: number | undefined };
  /** Slow preparations of a task, as pulling an image. Rejects with a LaunchError. */
  prepare(launch: TaskLaunch, signal: AbortSignal): Promise<void>;
  /** Resolves when the task runs. Rejects with a LaunchError. */
  start(launch: TaskLaunch): Promise<TaskHandle>;
  /** Removes what was prepared for a task that did not start. */
  abandon?(plan: TaskPlan): Promise<void>;
  /**
   * Takes over a task that an earlier process of this worker started, by its handle's `record`;
   * undefined where nothing of it is left.
   */
  adopt(launch: TaskLaunch, record: unknown): Promise<TaskHandle | undefined>;
  /**
   * Ends everything that carries this worker's mark and belongs to no known task; returns the
   * number.
   */
  sweep(known: ReadonlySet<string>): Promise<number>;
}

/** The input of a start besides the plan. */
export interface TaskLaunch {
  readonly plan: TaskPlan;
  /** The directory of all tasks, below which no link is followed. */
  readonly root: string;
  readonly jobId: string;
  /** The task's own directory, where an executor may keep files. */
  readonly directory: string;
  /** The program's initial directory; exists. */
  readonly workingDirectory: string;
  readonly environment: Readonly<Record<string, string>>;
  /** The variables of `environment` that are secrets. */
  readonly secretVariables: Readonly<Record<string, string>>;
  /** Files to which the task's output is appended. */
  readonly stdout: string;
  readonly stderr: string;
  /** All of this worker's paths that a task with its own file system sees, under the same names. */
  readonly mounts: readonly TaskMount[];
  /** The job's checkpoint directory, shared by its tasks. */
  readonly checkpointDirectory: string;
  /** The gRPC addresses of a training job's parameter servers, by shard; else empty. */
  readonly parameterServers: readonly string[];
  /** Likewise of all parameter servers that are ready. */
  readonly readyServers: readonly string[];
  /** Likewise of those that were lost minutes ago. */
  readonly lostServers: readonly string[];
  /** The secret of their data connections; empty on an adopted task, and of other jobs. */
  readonly jobToken: Uint8Array;
  /** The ticket for the parameter servers; likewise. */
  readonly ticket: string;
  /** Node ids by rank; empty on an adopted task. */
  readonly nodes: readonly string[];
}

/** A directory or a file that the task needs. */
interface TaskMount {
  readonly path: string;
  readonly isReadOnly: boolean;
}

/** The places of a gang's tasks, which the leader sends when all of them are leased. */
export interface GangPlaces {
  /** `host:port` by rank. */
  readonly peers: readonly string[];
  readonly parameterServers: readonly string[];
  readonly readyServers: readonly string[];
  readonly lostServers: readonly string[];
  readonly jobToken: Uint8Array;
  readonly ticket: string;
  /** Variables of the job whose values are secrets: they are never written to a disk. */
  readonly secretVariables: Readonly<Record<string, string>>;
  readonly nodes: readonly string[];
}

/** An adopted task runs already and needs no places. */
export const NO_PLACES: GangPlaces = {
  peers: [],
  parameterServers: [],
  readyServers: [],
  lostServers: [],
  nodes: [],
  jobToken: new Uint8Array(),
  ticket: "",
  secretVariables: {},
};

/** A running task. */
export interface TaskHandle {
  /** Identifies the task after a restart of this worker; JSON. */
  readonly record: unknown;
  /** Sends the signal to each of its processes; with `onlyCaught`, to those that handle it. */
  signal(name: NodeJS.Signals, onlyCaught?: boolean): Promise<number>;
  /** Stops or continues all its processes; idempotent. */
  hold(isHeld: boolean): Promise<void>;
  /** Ends the task and all its processes; resolves when nothing of it is left. */
  kill(): Promise<void>;
  /** The same by a scan of now and without waiting, for a worker that must end at once. */
  killNow(scan: ProcessScan): void;
  /** Resolves once, when the task has ended and nothing of it is left. */
  readonly exited: Promise<TaskEnd>;
  /** The task's current use of resources. */
  usage(): Promise<TaskUsage>;
}

export interface TaskUsage {
  readonly memoryBytes: number;
  readonly processes: number;
}

/** How a task's main process ended. Both absent: it ended unobserved. */
export interface TaskEnd {
  readonly exitCode?: number | undefined;
  readonly signal?: string | undefined;
  /** The system killed it for its use of memory. */
  readonly outOfMemory?: boolean | undefined;
  /** Another node that it needs was unreachable: it is not the task's fault. */
  readonly lostNode?: boolean | undefined;
  /** What else took it away, likewise. */
  readonly lostBy?: string | undefined;
  /** Its input cannot be run, and a retry would fail in the same way. */
  readonly isUnusable?: boolean | undefined;
  /** It failed by itself, and its last line gives the reason. */
  readonly hasReason?: boolean | undefined;
  /** All of its checkpoints are damaged. */
  readonly isCheckpointCorrupt?: boolean | undefined;
}

type LaunchFailure = Extract<FailureReason, "LaunchFailed" | "ImagePull" | "Unsatisfiable">;

/** A task could not start, for a reason on which its owner can act. */
export class LaunchError extends Error {
  readonly reason: LaunchFailure;

  constructor(reason: LaunchFailure, message: string, cause?: unknown) {
    super(message, { cause });
    this.reason = reason;
  }
}

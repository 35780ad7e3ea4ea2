import type { FailureReason } from "@heddle/contracts/jobs";
import type { TaskPlan } from "../records/task-plan.ts";

/**
 * What runs tasks: as processes, in containers, in this process (training), or elsewhere as in a
 * Kubernetes cluster. The task table decides when; an executor knows how.
 */
export interface Executor {
  readonly name: string;
  /** Training algorithms that it can run; absent on one that runs programs. */
  readonly algorithms?: readonly string[] | undefined;
  /** By algorithm of a plugin: the JSON Schema of its config, as JSON. */
  readonly schemas?: Readonly<Record<string, string>> | undefined;
  /** What its `ppo` can train in, likewise. */
  readonly environments?: readonly string[] | undefined;
  /** What takes time before the task can run, as pulling an image. Rejects with a LaunchError. */
  prepare(plan: TaskPlan, signal: AbortSignal): Promise<void>;
  /** Resolves when the task runs. Rejects with a LaunchError. */
  start(launch: TaskLaunch): Promise<TaskHandle>;
  /**
   * Takes over what an earlier process of this worker started, from the `record` that its handle
   * had; undefined where nothing of it is left.
   */
  adopt(launch: TaskLaunch, record: unknown): Promise<TaskHandle | undefined>;
  /** Ends whatever carries this worker's mark and belongs to none of the tasks named; how many. */
  sweep(known: ReadonlySet<string>): Promise<number>;
}

/** All that a start needs beside the plan. */
export interface TaskLaunch {
  readonly plan: TaskPlan;
  /** The directory of all tasks, below which no link is followed. */
  readonly root: string;
  readonly jobId: string;
  /** The task's own directory, where an executor may keep files. */
  readonly directory: string;
  /** Where the program begins; exists. */
  readonly workingDirectory: string;
  readonly environment: Readonly<Record<string, string>>;
  /** Files that what the task writes is appended to. */
  readonly stdout: string;
  readonly stderr: string;
  /** All that a task which has its own file system sees of this worker's, under the same paths. */
  readonly mounts: readonly TaskMount[];
  /** Of the job, shared by its tasks. */
  readonly checkpointDirectory: string;
  /** Of a training job: gRPC addresses of the parameter servers by shard; else empty. */
  readonly parameterServers: readonly string[];
  /** Likewise of all parameter servers that are ready. */
  readonly readyServers: readonly string[];
  /** The secret of their data connections; empty on a task that was taken over, and of other jobs. */
  readonly jobToken: Uint8Array;
  /** What the parameter servers let it in by; likewise. */
  readonly ticket: string;
  /** Node ids by rank; empty on a task that was taken over from an earlier process. */
  readonly nodes: readonly string[];
}

/** A directory or a file that the task needs. */
interface TaskMount {
  readonly path: string;
  readonly isReadOnly: boolean;
}

/** Where the rest of a gang is, as the leader tells when all of it are leased. */
export interface GangPlaces {
  /** `host:port` by rank. */
  readonly peers: readonly string[];
  readonly parameterServers: readonly string[];
  readonly readyServers: readonly string[];
  readonly jobToken: Uint8Array;
  readonly ticket: string;
  readonly nodes: readonly string[];
}

/** A task that runs. */
export interface TaskHandle {
  /** Finds the task again after a restart of this worker; JSON. */
  readonly record: unknown;
  /** Sends the signal to each of its processes; with `onlyCaught`, to those that handle it. */
  signal(name: NodeJS.Signals, onlyCaught?: boolean): Promise<number>;
  /** Stops all its processes where they are, or has them go on; may be said again. */
  hold(isHeld: boolean): Promise<void>;
  /** Ends the task and all that it started; resolves when nothing of it is left. */
  kill(): Promise<void>;
  /** The same without waiting, for a worker that must end now. */
  killNow(): void;
  /** Resolves once, when the task has ended and nothing of it is left. */
  readonly exited: Promise<TaskEnd>;
  /** What the task holds now. */
  usage(): Promise<TaskUsage>;
}

export interface TaskUsage {
  readonly memoryBytes: number;
  readonly processes: number;
}

/** How a task's main process ended. Both absent: it ended while nobody looked. */
export interface TaskEnd {
  readonly exitCode?: number | undefined;
  readonly signal?: string | undefined;
  /** The system killed it for its use of memory. */
  readonly outOfMemory?: boolean | undefined;
  /** Another node that it needs was away: it is no fault of the task. */
  readonly lostNode?: boolean | undefined;
  /** What it was given cannot be run, and a further attempt would meet the same. */
  readonly isUnusable?: boolean | undefined;
  /** It has met its own failure, and its last line says what failed and why. */
  readonly saysWhy?: boolean | undefined;
  /** All that it could go on from is damaged. */
  readonly isCheckpointCorrupt?: boolean | undefined;
}

type LaunchFailure = Extract<FailureReason, "LaunchFailed" | "ImagePull" | "Unsatisfiable">;

/** A task could not be begun, for a reason that its owner can act on. */
export class LaunchError extends Error {
  readonly reason: LaunchFailure;

  constructor(reason: LaunchFailure, message: string, cause?: unknown) {
    super(message, { cause });
    this.reason = reason;
  }
}

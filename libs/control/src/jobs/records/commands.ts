import type { SubmitJob } from "@heddle/contracts/jobs";
import type {
  CheckpointRecord,
  DeviceReading,
  NodeOffer,
  ProgressRecord,
  QueueRecord,
  QuotaRecord,
  ServerRecord,
  ServingHold,
  TaskExitRecord,
} from "./records.ts";

/**
 * Everything that changes the state of jobs and nodes. Spans of time come with the command, from
 * the leader's settings, so that apply needs none of its own; `atMs` is the proposer's clock.
 */
export type JobsCommand =
  | SubmitJobCommand
  | RequestJobCommand
  | CommitPlanCommand
  | ReportTasksCommand
  | JudgeJobsCommand
  | ReportProgressCommand
  | JoinNodeCommand
  | ServingNodeCommand
  | ReadyReplicaCommand
  | ReleaseReplicaCommand
  | FailReplicaCommand
  | LoseNodesCommand
  | DrainNodeCommand
  | ResumeNodeCommand
  | QuarantineDeviceCommand
  | JoinServerCommand
  | LoseServersCommand
  | RegisteredModelCommand
  | SetProjectCommand
  | SetQueueCommand
  | TickCommand;

export interface SubmitJobCommand {
  readonly type: "job.submit";
  readonly atMs: number;
  readonly jobId: string;
  /** As parsed: every default filled in. */
  readonly spec: SubmitJob;
}

/** Repeating one that is done already succeeds. */
export interface RequestJobCommand {
  readonly type: "job.request";
  readonly atMs: number;
  readonly jobId: string;
  readonly request: "cancel" | "suspend" | "resume";
  /** Refused with `precondition_failed` unless the job's latest change is of this log index. */
  readonly ifIndex?: number | undefined;
}

/** What the scheduler decided on the state at `basedOnIndex`; what no longer holds is dropped. */
export interface CommitPlanCommand {
  readonly type: "plan.commit";
  readonly atMs: number;
  readonly basedOnIndex: number;
  /** CPU and memory handed out, in multiples of what is present. */
  readonly overcommitRatio: number;
  /** The cluster's limits, by which quotas are checked again; absent in logs of earlier versions. */
  readonly limits?: PlanLimits | undefined;
  /** How long the workers may take to acknowledge their leases. */
  readonly acknowledgeMs: number;
  /** Accepted jobs whose quota and dependencies were looked at. */
  readonly admitted: readonly string[];
  readonly unsatisfiable: readonly { readonly jobId: string; readonly message: string }[];
  readonly starts: readonly PlannedStart[];
  readonly preemptions: readonly { readonly victimId: string; readonly forJobId: string }[];
  /** Running jobs past their bound. */
  readonly expired: readonly string[];
  /** The jobs that keep their places in the queue, in order. */
  readonly line?: readonly PlannedPlace[] | undefined;
  /** The one promise of a plan in logs of earlier versions, which have no line. */
  readonly promise?: { readonly jobId: string; readonly startAtMs: number } | undefined;
}

/** A job, or lost tasks that rejoin theirs, with a place in the queue that is kept until they start. */
export interface PlannedPlace {
  readonly jobId: string;
  /** The start that it is promised; absent for one that a promise behind it passes over. */
  readonly startAtMs?: number | undefined;
}

export interface PlanLimits {
  readonly jobTimeoutMs: number;
  readonly maxConcurrentJobs: number;
}

export interface PlannedStart {
  readonly jobId: string;
  /** One place a task in the order of ranks; of a recovering job, of its lost ranks only. */
  readonly placements: readonly {
    readonly nodeId: string;
    readonly devices: readonly number[];
  }[];
}

/** What one worker says of its tasks. Older attempts and tasks of other nodes are passed over. */
export interface ReportTasksCommand {
  readonly type: "tasks.report";
  readonly atMs: number;
  readonly nodeId: string;
  readonly reports: readonly TaskReportEntry[];
  /**
   * How long a failure that a lost node may have caused waits for word of the other tasks' nodes;
   * absent: not at all.
   */
  readonly wordMs?: number | undefined;
}

/** The nodes of all tasks of these jobs were heard of since the failures that wait for that. */
export interface JudgeJobsCommand {
  readonly type: "jobs.judge";
  readonly atMs: number;
  readonly entries: readonly {
    readonly jobId: string;
    readonly attempt: number;
    /** Of the failure that was looked at. */
    readonly suspectedMs: number;
  }[];
}

export interface TaskReportEntry {
  readonly jobId: string;
  readonly attempt: number;
  readonly rank: number;
  /** Of the task that the worker speaks of, 0 for the first; absent: the one that is known. */
  readonly incarnation?: number | undefined;
  readonly phase: "leased" | "starting" | "running" | "stopping" | "exited";
  readonly rendezvous?: string | undefined;
  /** With phase `exited`. */
  readonly exit?: TaskExitRecord | undefined;
  /** Devices of its node that ended it: they are taken out in the same entry of the log. */
  readonly sickDevices?: readonly number[] | undefined;
}

export interface ReportProgressCommand {
  readonly type: "jobs.progress";
  readonly atMs: number;
  readonly entries: readonly {
    readonly jobId: string;
    readonly attempt: number;
    readonly progress?: ProgressRecord | undefined;
    readonly checkpoint?: CheckpointRecord | undefined;
  }[];
}

/** A node has attached, or offers something else than before. */
export interface JoinNodeCommand {
  readonly type: "node.join";
  readonly atMs: number;
  readonly offer: NodeOffer;
}

/** Which replicas hold devices of a node that they did not get from the scheduler. */
export interface ServingNodeCommand {
  readonly type: "node.update";
  readonly atMs: number;
  readonly nodeId: string;
  readonly serving: readonly ServingHold[];
}

/** A replica that had its place from the scheduler serves. */
export interface ReadyReplicaCommand {
  readonly type: "replica.ready";
  readonly atMs: number;
  readonly nodeId: string;
  readonly deployment: string;
}

/** A replica that had its place from the scheduler is gone from the node. */
export interface ReleaseReplicaCommand {
  readonly type: "replica.release";
  readonly atMs: number;
  readonly nodeId: string;
  readonly deployment: string;
}

/** A replica that had its place from the scheduler has failed in a way that no further try mends. */
export interface FailReplicaCommand {
  readonly type: "replica.fail";
  readonly atMs: number;
  readonly nodeId: string;
  readonly deployment: string;
  readonly code: string;
  readonly message: string;
}

export interface LoseNodesCommand {
  readonly type: "node.lost";
  readonly atMs: number;
  readonly nodeIds: readonly string[];
  /** From here on every lease on them is over. */
  readonly fencedAtMs: number;
}

/** Idempotent; a later one changes the deadline. */
export interface DrainNodeCommand {
  readonly type: "node.drain";
  readonly atMs: number;
  readonly nodeId: string;
  /** When its tasks are ended whether they have checkpointed or not. */
  readonly byMs: number;
}

/** Ends a drain, midway or done, and takes devices back that are well again. */
export interface ResumeNodeCommand {
  readonly type: "node.resume";
  readonly atMs: number;
  readonly nodeId: string;
  /** Devices that were taken out and that their worker no longer calls sick. */
  readonly wellDevices?: readonly number[] | undefined;
  /** The reading that they are well by. */
  readonly wellAsOf?: DeviceReading | undefined;
}

export interface QuarantineDeviceCommand {
  readonly type: "node.quarantine";
  readonly atMs: number;
  readonly nodeId: string;
  readonly device: number;
  /** Absent: the device is well again. */
  readonly why?: string | undefined;
  /** The reading that it is sick by; nothing comes of one before that by which it was taken back. */
  readonly asOf?: DeviceReading | undefined;
}

/** A parameter server has attached; as another process than before, it has lost its shards. */
export interface JoinServerCommand {
  readonly type: "server.join";
  readonly atMs: number;
  readonly server: Pick<ServerRecord, "id" | "name" | "address" | "incarnation">;
}

export interface LoseServersCommand {
  readonly type: "server.lost";
  readonly atMs: number;
  readonly serverIds: readonly string[];
}

/** The model of a job that has succeeded is registered, or cannot be. */
export interface RegisteredModelCommand {
  readonly type: "job.registered";
  readonly atMs: number;
  readonly jobId: string;
  readonly modelId: string;
  readonly fault?: string | undefined;
}

export interface SetProjectCommand {
  readonly type: "project.set";
  readonly atMs: number;
  readonly name: string;
  readonly weight: number;
  readonly quota: QuotaRecord;
}

export interface SetQueueCommand {
  readonly type: "queue.set";
  readonly atMs: number;
  readonly queue: QueueRecord;
}

/** Fires all that is due at `atMs`. */
export interface TickCommand {
  readonly type: "clock.tick";
  readonly atMs: number;
}

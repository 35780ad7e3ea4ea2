import type { SubmitJob } from "@heddle/contracts/api/job-spec";
import type { TaskPlacement } from "@heddle/scheduler/model";
import type { PlanEntry } from "@heddle/scheduler/plan-entry";
import type {
  CheckpointRecord,
  DeviceReading,
  NodeOffer,
  ProgressRecord,
  QueueRecord,
  QuotaRecord,
  ServerRecord,
  ServingHold,
  StageClaimRecord,
  TaskExitRecord,
} from "./records.ts";

/**
 * Every command that changes jobs and nodes. Time spans come from the leader's settings with the
 * command; `atMs` is the proposer's clock.
 */
export type JobsCommand =
  | SubmitJobCommand
  | RequestJobCommand
  | CommitPlanCommand
  | ReportTasksCommand
  | ConfirmFailuresCommand
  | ReportProgressCommand
  | JoinNodeCommand
  | ServingNodeCommand
  | ClaimStagesCommand
  | PlaceStagesCommand
  | ReadyReplicaCommand
  | ReleaseReplicaCommand
  | FailReplicaCommand
  | LoseNodesCommand
  | FenceNodesCommand
  | DrainNodeCommand
  | ResumeNodeCommand
  | QuarantineDeviceCommand
  | JoinServerCommand
  | LoseServersCommand
  | RegisteredModelCommand
  | SetProjectCommand
  | SetQueueCommand
  | TickCommand;

/** A command as a log holds it, in the present or an earlier form. */
export type LoggedJobsCommand =
  | JobsCommand
  | LoggedPlan
  | EarlierReport
  | EarlierConfirmation
  | EarlierResume;

export interface SubmitJobCommand {
  readonly type: "job.submit";
  readonly atMs: number;
  readonly jobId: string;
  /** Parsed, with all defaults. */
  readonly spec: SubmitJob;
}

/** Repeating a fulfilled request succeeds. */
export interface RequestJobCommand {
  readonly type: "job.request";
  readonly atMs: number;
  readonly jobId: string;
  readonly request: "cancel" | "suspend" | "resume";
  /** Refused with `precondition_failed` unless the job last changed at this log index. */
  readonly ifIndex?: number | undefined;
}

/** The scheduler's decisions on the state at `basedOnIndex`; those no longer valid are dropped. */
export interface CommitPlanCommand {
  readonly type: "plan.commit";
  readonly atMs: number;
  readonly basedOnIndex: number;
  /** The factor by which CPU and memory may be oversubscribed. */
  readonly overcommitRatio: number;
  /** The cluster's limits, for the quota check in apply; absent in logs of earlier versions. */
  readonly limits?: PlanLimits | undefined;
  /** How long the workers may take to acknowledge their leases. */
  readonly acknowledgeMs: number;
  /** Accepted jobs that passed the checks of quota and dependencies. */
  readonly admitted: readonly string[];
  readonly unsatisfiable: readonly { readonly jobId: string; readonly message: string }[];
  readonly starts: readonly PlannedStart[];
  readonly preemptions: readonly { readonly victimId: string; readonly forEntry: PlanEntry }[];
  /** Running jobs past their time limit. */
  readonly expired: readonly string[];
  /** The jobs that keep their rank in the queue, in order. */
  readonly ranked?: readonly RankedJob[] | undefined;
  /** The single reservation of a plan in logs of earlier versions, which rank no jobs. */
  readonly reservation?: PlannedReservation | undefined;
}

export interface PlannedReservation {
  readonly jobId: string;
  readonly startAtMs: number;
}

/** A plan entry as it is logged: `jobId` is the earlier form. */
export type LoggedEntry = { readonly entry: PlanEntry } | { readonly jobId: string };

/** A plan as a log holds it, in the present or an earlier form. */
export interface LoggedPlan extends Omit<CommitPlanCommand, "starts" | "preemptions"> {
  readonly starts: readonly (LoggedEntry &
    Pick<CommitPlanCommand["starts"][number], "placements">)[];
  readonly preemptions: readonly LoggedPreemption[];
  /** The earlier name of `ranked`. */
  readonly line?: readonly RankedJob[] | undefined;
  /** The earlier name of `reservation`. */
  readonly promise?: PlannedReservation | undefined;
}

type LoggedPreemption = { readonly victimId: string } & (
  | { readonly forEntry: PlanEntry }
  | { readonly forJobId: string }
);

/** A waiting or recovering job whose rank in the queue is kept until the start. */
export interface RankedJob {
  readonly jobId: string;
  /** The reserved start; absent for a job that a reservation behind it overtakes. */
  readonly startAtMs?: number | undefined;
}

export interface PlanLimits {
  readonly jobTimeoutMs: number;
  readonly maxConcurrentJobs: number;
}

export interface PlannedStart {
  readonly entry: PlanEntry;
  /** One place per task in the order of ranks; for a recovering job, of its lost ranks only. */
  readonly placements: readonly {
    readonly nodeId: string;
    readonly devices: readonly number[];
  }[];
}

/** One worker's report of its tasks. Older attempts and tasks of other nodes are ignored. */
export interface WorkerReport {
  readonly nodeId: string;
  readonly reports: readonly TaskReportEntry[];
}

/** A worker's report, and from GROUPS_REPORTS on those of others. */
export interface ReportTasksCommand extends WorkerReport {
  readonly type: "tasks.report";
  readonly atMs: number;
  readonly others?: readonly WorkerReport[] | undefined;
  /**
   * How long an unconfirmed failure waits for a report of the other tasks' nodes. Absent: not at
   * all.
   */
  readonly statusTimeoutMs?: number | undefined;
}

/** A report of versions before STANDARD_TERMS. */
export interface EarlierReport extends Omit<ReportTasksCommand, "statusTimeoutMs" | "others"> {
  /** The earlier name of `statusTimeoutMs`. */
  readonly wordMs?: number | undefined;
}

/** All nodes of these jobs have reported since the unconfirmed failure. */
export interface ConfirmFailuresCommand {
  readonly type: "jobs.confirmFailures";
  readonly atMs: number;
  readonly entries: readonly {
    readonly jobId: string;
    readonly attempt: number;
    /** Identifies the failure that was checked. */
    readonly suspectedMs: number;
  }[];
}

/** A confirmation of versions before STANDARD_TERMS. */
export interface EarlierConfirmation extends Omit<ConfirmFailuresCommand, "type"> {
  readonly type: "jobs.judge";
}

export interface TaskReportEntry {
  readonly jobId: string;
  readonly attempt: number;
  readonly rank: number;
  /** The task's incarnation, 0 for the first; absent: the known one. */
  readonly incarnation?: number | undefined;
  readonly phase: "leased" | "starting" | "running" | "stopping" | "exited";
  readonly rendezvous?: string | undefined;
  /** With phase `exited`. */
  readonly exit?: TaskExitRecord | undefined;
  /** Devices of its node that caused the exit; the same log entry quarantines them. */
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

/** A node has attached, or its offer has changed. */
export interface JoinNodeCommand {
  readonly type: "node.join";
  readonly atMs: number;
  readonly offer: NodeOffer;
}

/** Which replicas hold devices of a node without a place from the scheduler. */
export interface ServingNodeCommand {
  readonly type: "node.update";
  readonly atMs: number;
  readonly nodeId: string;
  readonly serving: readonly ServingHold[];
}

/** Stages of a replica queue for GPUs, in place of those that did so before. From PLACES_STAGES on. */
export interface ClaimStagesCommand {
  readonly type: "replica.claim";
  readonly atMs: number;
  readonly deployment: string;
  /** Absent: none does any more. */
  readonly claim?: StageClaimRecord | undefined;
}

/** Stages that move get GPUs, all or none. From PLACES_STAGES on. */
export interface PlaceStagesCommand {
  readonly type: "replica.place";
  readonly atMs: number;
  readonly deployment: string;
  /** At most one on a node. */
  readonly places: readonly TaskPlacement[];
  readonly limits: PlanLimits;
}

/** A replica with a place from the scheduler serves. */
export interface ReadyReplicaCommand {
  readonly type: "replica.ready";
  readonly atMs: number;
  readonly nodeId: string;
  readonly deployment: string;
}

/** A replica with a place from the scheduler has left the node. */
export interface ReleaseReplicaCommand {
  readonly type: "replica.release";
  readonly atMs: number;
  readonly nodeId: string;
  readonly deployment: string;
}

/** A replica with a place from the scheduler failed for a reason that a retry cannot fix. */
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
  /** When every lease there will have expired. An estimate: `node.fenced` decides. */
  readonly fencedAtMs: number;
}

/** One loss of a node: a later one has another index. */
export interface NodeLoss {
  readonly nodeId: string;
  readonly lostIndex: number;
}

/** Every lease from before these losses has expired; from FENCES_BY_LEADER on. */
export interface FenceNodesCommand {
  readonly type: "node.fenced";
  readonly atMs: number;
  readonly losses: readonly NodeLoss[];
}

/** Idempotent; a later one changes the deadline. */
export interface DrainNodeCommand {
  readonly type: "node.drain";
  readonly atMs: number;
  readonly nodeId: string;
  /** When its tasks are killed, with or without a checkpoint. */
  readonly byMs: number;
}

/** Cancels or ends a drain, and returns healthy devices to service. */
export interface ResumeNodeCommand {
  readonly type: "node.resume";
  readonly atMs: number;
  readonly nodeId: string;
  /** Quarantined devices that their worker no longer reports as unhealthy. */
  readonly healthyDevices?: readonly number[] | undefined;
  /** The device reading that shows them healthy. */
  readonly healthyAsOf?: DeviceReading | undefined;
}

/** The end of a drain in versions before STANDARD_TERMS. */
export interface EarlierResume extends Omit<ResumeNodeCommand, "healthyDevices" | "healthyAsOf"> {
  readonly wellDevices?: readonly number[] | undefined;
  readonly wellAsOf?: DeviceReading | undefined;
}

export interface QuarantineDeviceCommand {
  readonly type: "node.quarantine";
  readonly atMs: number;
  readonly nodeId: string;
  readonly device: number;
  /** Absent: the device is healthy again. */
  readonly why?: string | undefined;
  /** The device reading that shows it unhealthy; ignored if older than the one that returned it. */
  readonly asOf?: DeviceReading | undefined;
}

/** A parameter server has attached; a new process has lost its shards. */
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

/** The model of a succeeded job is registered, or cannot be. */
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

/** Fires every timer that is due at `atMs`. */
export interface TickCommand {
  readonly type: "clock.tick";
  readonly atMs: number;
}

import type { FailureReason, JobState } from "@heddle/contracts/api/job-spec";
import { LIMITED_TASKS } from "../../cluster-version.ts";
import { messagesAt } from "../../state-messages.ts";
import type { IdleLosses, JobFailureRecord, JobRecord, Leaving } from "./records.ts";
import { NO_RESERVATION } from "./renamed-fields.ts";

/** The events of a job's lifecycle. */
export type JobTransition =
  /** Its quota and dependencies were checked. */
  | { readonly type: "admitted" }
  /** A plan has reserved places: for the whole gang, or for the lost tasks. */
  | {
      readonly type: "reserved";
      readonly tasks: number;
      readonly byMs: number;
      /** Parameter servers by shard; a gang that gets replacements keeps its own. */
      readonly shards?: readonly string[] | undefined;
    }
  /** Every worker has acknowledged its lease. */
  | { readonly type: "leased" }
  /** Every task runs, or has already succeeded. */
  | { readonly type: "rendezvous" }
  /** It must leave its places. */
  | { readonly type: "leave"; readonly leaving: Leaving; readonly byMs: number }
  /** The present state has timed out: acknowledgement or grace period. */
  | { readonly type: "due" }
  /** A task has certainly ended. */
  | { readonly type: "taskOver" }
  /** Nodes of the attempt are lost. */
  | NodesLost
  /** A task of the attempt has failed. */
  | { readonly type: "failed"; readonly failure: JobFailureRecord; readonly retryLimit: number }
  /** A task has failed, possibly because of another task's node that has not reported since. */
  | { readonly type: "suspected"; readonly failure: JobFailureRecord; readonly byMs: number }
  /** A failure that no retry can fix. */
  | { readonly type: "doomed"; readonly failure: JobFailureRecord }
  /** Every task has succeeded. */
  | { readonly type: "succeeded" }
  | { readonly type: "cancel" }
  | { readonly type: "resume" };

/** The loss of tasks' nodes. */
interface NodesLost {
  readonly type: "nodesLost";
  /** Whether the tolerance covers all losses. */
  readonly within: boolean;
  /** Whether a node fell silent, as opposed to a report of its worker that tasks are gone. */
  readonly isSilent: boolean;
  readonly failure: JobFailureRecord;
}

/** Time and log index of the command, and the cluster version whose rules apply. */
export interface ApplyContext {
  readonly index: number;
  readonly atMs: number;
  /** The cluster version; see cluster-version.ts. */
  readonly version: number;
}

/** Losses of nodes and devices before the job fails as NodeLost. */
export const MAX_LOSSES = 100;
/** Silent losses in a row without progress: one more fails the job, as Slurm's max_batch_requeue. */
const MAX_IDLE_LOSSES = 5;
/** An attempt that has run this long has made progress, even if it reports none. */
const LONG_RUN_MS = 600_000;
const FIRST_BACKOFF_MS = 1_000;
const MAX_BACKOFF_MS = 300_000;
/** The same for starts that a node refused. */
const MAX_REFUSED_BACKOFF_MS = 30_000;

const TERMINAL: ReadonlySet<JobState> = new Set(["succeeded", "failed", "cancelled"]);
/** States of an attempt in progress. */
const UNDER_WAY: ReadonlySet<JobState> = new Set([
  "scheduled",
  "starting",
  "running",
  "recovering",
]);
/** Failures that would recur in another attempt. */
const FINAL_REASONS: ReadonlySet<FailureReason> = new Set([
  "DeadlineExceeded",
  "DependencyFailed",
  "CheckpointCorrupt",
  "Unsatisfiable",
  "StorageExceeded",
]);
/** Infrastructure failures, which use no retry. */
const LOSS_REASONS: ReadonlySet<FailureReason> = new Set(["NodeLost", "GpuFault"]);

export function isTerminal(state: JobState): boolean {
  return TERMINAL.has(state);
}

/** Whether the tasks of the present attempt should continue. */
export function isUnderWay(state: JobState): boolean {
  return UNDER_WAY.has(state);
}

/**
 * The lifecycle's transition table: the states that an event leads through, in order; none if the
 * event does not apply.
 * - Nothing leaves a terminal state.
 * - Only a reservation raises the attempt.
 * - A reservation requires that no task of an older attempt is live.
 */
export function transition(
  job: JobRecord,
  event: JobTransition,
  now: ApplyContext,
): readonly JobRecord[] {
  if (isTerminal(job.state)) return event.type === "taskOver" ? [taskOver(job, now)] : [];
  switch (event.type) {
    case "admitted":
      return job.state === "accepted" ? [enter(job, "pending", now)] : [];
    case "reserved":
      return reserve(job, event, now);
    case "leased":
      return job.state === "scheduled" ? [enter(job, "starting", now)] : [];
    case "rendezvous":
      return rendezvous(job, now);
    case "leave":
      return leave(job, event.leaving, event.byMs, now);
    case "due":
      return due(job, now);
    case "taskOver":
      return settle([taskOver(job, now)], now);
    case "nodesLost":
      return loseNodes(job, event, now);
    case "failed":
      return fail(job, event.failure, event.retryLimit, now);
    case "suspected":
      return suspect(job, event.failure, event.byMs, now);
    case "doomed":
      return [end(job, "failed", now, event.failure)];
    case "succeeded":
      return succeed(job, now);
    case "cancel":
      if (job.state === "cancelling") return [];
      return settle([enter(job, "cancelling", now)], now);
    case "resume":
      // A job that was never admitted must still be admitted.
      return job.state === "suspended" ? [enter(job, job.leaving?.from ?? "pending", now)] : [];
    default:
      return event satisfies never;
  }
}

function enter(
  job: JobRecord,
  state: JobState,
  now: ApplyContext,
  change: Partial<JobRecord> = {},
): JobRecord {
  return {
    ...job,
    state,
    sinceMs: now.atMs,
    changedIndex: now.index,
    dueMs: undefined,
    suspectedMs: undefined,
    // An unconfirmed failure is not kept for the next attempt.
    failure: job.suspectedMs === undefined ? job.failure : undefined,
    leaving: undefined,
    ...change,
  };
}

function end(
  job: JobRecord,
  state: JobState,
  now: ApplyContext,
  failure?: JobFailureRecord,
): JobRecord {
  const change = failure ? { failure, endedAtMs: now.atMs } : { endedAtMs: now.atMs };
  return enter(job, state, now, { ...change, notBeforeMs: undefined, ...NO_RESERVATION });
}

function taskOver(job: JobRecord, now: ApplyContext): JobRecord {
  return { ...job, liveTasks: job.liveTasks - 1, changedIndex: now.index };
}

function reserve(
  job: JobRecord,
  { tasks, byMs, shards }: Extract<JobTransition, { type: "reserved" }>,
  now: ApplyContext,
): readonly JobRecord[] {
  if (job.state === "recovering") {
    const liveTasks = job.liveTasks + tasks;
    return [{ ...job, ...NO_RESERVATION, liveTasks, changedIndex: now.index }];
  }
  if (job.state !== "pending" || job.liveTasks > 0) return [];
  const change = {
    attempt: job.attempt + 1,
    tasks,
    liveTasks: tasks,
    shards,
    dueMs: byMs,
    notBeforeMs: undefined,
    ...NO_RESERVATION,
    startedAtMs: undefined,
  };
  return [enter(job, "scheduled", now, change)];
}

function rendezvous(job: JobRecord, now: ApplyContext): readonly JobRecord[] {
  if (job.state !== "starting" && job.state !== "recovering") return [];
  const startedAtMs = job.startedAtMs ?? now.atMs;
  const firstStartedAtMs = job.firstStartedAtMs ?? now.atMs;
  // A running job has no failure; its events keep the past ones.
  return [enter(job, "running", now, { startedAtMs, firstStartedAtMs, failure: undefined })];
}

/** A job that has run may checkpoint first; one that has not started stops at once. */
function leave(
  job: JobRecord,
  leaving: Leaving,
  byMs: number,
  now: ApplyContext,
): readonly JobRecord[] {
  const isSuspend = leaving.why === "suspend";
  if (hasRun(job)) return [enter(job, "checkpointing", now, { leaving, dueMs: byMs })];
  if (job.state === "checkpointing") {
    const dueMs = Math.min(byMs, job.dueMs ?? byMs);
    const why = isSuspend ? leaving : job.leaving;
    return [{ ...job, leaving: why, dueMs, changedIndex: now.index }];
  }
  if (isUnderWay(job.state)) return settle([left(job, leaving, now)], now);
  if (!isSuspend || job.state === "cancelling" || job.state === "suspended") return [];
  const from = job.state === "accepted" ? job.state : undefined;
  return [enter(job, "suspended", now, { leaving: { ...leaving, from }, ...NO_RESERVATION })];
}

/** Also a recovering job: its remaining tasks may have much to save. */
function hasRun({ state, startedAtMs }: JobRecord): boolean {
  return state === "running" || (state === "recovering" && startedAtMs !== undefined);
}

/** Gives up its places; the tasks that still hold some are stopped. */
function left(job: JobRecord, leaving: Leaving, now: ApplyContext): JobRecord {
  if (leaving.why === "suspend") return enter(job, "suspended", now, { leaving });
  return enter(job, "preempted", now, { leaving, preemptions: job.preemptions + 1 });
}

function due(job: JobRecord, now: ApplyContext): readonly JobRecord[] {
  if (job.state === "scheduled") return [enter(job, "pending", now)];
  if (job.suspectedMs !== undefined) {
    const message = messagesAt(now.version).unreportedRank(job.failure?.rank);
    const failure = { reason: "NodeLost", message } as const;
    return loseNodes(job, { within: false, isSilent: false, failure }, now);
  }
  if (job.state !== "checkpointing" || !job.leaving) return [];
  return settle([left(job, job.leaving, now)], now);
}

/** Leaves states that only wait for the last task to end. */
function settle(trail: readonly JobRecord[], now: ApplyContext): readonly JobRecord[] {
  const job = trail.at(-1)!;
  if (job.liveTasks > 0) return trail;
  switch (job.state) {
    case "checkpointing":
      return settle([...trail, left(job, job.leaving ?? { why: "preempt" }, now)], now);
    case "preempted":
    case "retrying":
      return [...trail, enter(job, "pending", now)];
    case "cancelling":
      return [...trail, end(job, "cancelled", now)];
    default:
      return trail;
  }
}

function loseNodes(
  job: JobRecord,
  { within, isSilent, failure }: Omit<NodesLost, "type">,
  now: ApplyContext,
): readonly JobRecord[] {
  const losses = job.losses + 1;
  if (!isUnderWay(job.state)) return [];
  if (losses > MAX_LOSSES) return [end(job, "failed", now, failure)];
  if (job.state === "scheduled") {
    const notBeforeMs = losses === 1 ? undefined : now.atMs + refusedBackoffMs(losses - 1);
    return settle([enter(job, "pending", now, { losses, notBeforeMs })], now);
  }
  const idleLosses = isSilent ? countIdleLoss(job, now) : job.idleLosses;
  const count = isSilent ? (idleLosses?.count ?? 0) : 0;
  if (count > MAX_IDLE_LOSSES)
    return [end(job, "failed", now, lossLoop(count, failure, now.version))];
  const change = { losses, failure, idleLosses };
  if (within) return [enter(job, "recovering", now, change)];
  const notBeforeMs = count > 1 ? now.atMs + refusedBackoffMs(count - 1) : undefined;
  return settle([enter(job, "retrying", now, { ...change, notBeforeMs })], now);
}

/** Counts a loss in a row with those before, unless the job has made progress since. */
function countIdleLoss(job: JobRecord, { atMs, version }: ApplyContext): IdleLosses | undefined {
  if (version < LIMITED_TASKS) return job.idleLosses;
  const { idleLosses: last, progress, checkpoint, startedAtMs = atMs } = job;
  const reached = { step: progress?.step, checkpointAtMs: checkpoint?.atMs };
  if (!last) return { count: 1, atMs, ...reached };
  const hasProgressed =
    (reached.step ?? 0) > (last.step ?? 0) ||
    reached.checkpointAtMs !== last.checkpointAtMs ||
    atMs - Math.max(startedAtMs, last.atMs) >= LONG_RUN_MS;
  return { count: hasProgressed ? 1 : last.count + 1, atMs, ...reached };
}

function lossLoop(count: number, failure: JobFailureRecord, version: number): JobFailureRecord {
  const message = messagesAt(version).lossLoop(count, LONG_RUN_MS / 60_000, failure.message);
  return { ...failure, message };
}

/** The scheduler may choose the same worker again at once, until all losses are used up. */
function refusedBackoffMs(times: number): number {
  return Math.min(MAX_REFUSED_BACKOFF_MS, FIRST_BACKOFF_MS * 2 ** (times - 1));
}

function fail(
  job: JobRecord,
  failure: JobFailureRecord,
  retryLimit: number,
  now: ApplyContext,
): readonly JobRecord[] {
  if (!isUnderWay(job.state)) return [];
  const { reason } = failure;
  if (FINAL_REASONS.has(reason)) return [end(job, "failed", now, failure)];
  if (LOSS_REASONS.has(reason)) {
    return loseNodes(job, { within: false, isSilent: false, failure }, now);
  }
  const failures = job.failures + 1;
  if (failures > retryLimit) {
    const last: JobFailureRecord =
      retryLimit === 0 ? failure : { ...failure, reason: "RetryLimitExceeded", cause: reason };
    return [{ ...end(job, "failed", now, last), failures }];
  }
  const backoffMs = Math.min(MAX_BACKOFF_MS, FIRST_BACKOFF_MS * 2 ** (failures - 1));
  const change = { failures, failure, notBeforeMs: now.atMs + backoffMs };
  return settle([enter(job, "retrying", now, change)], now);
}

/** The attempt continues until the cause is known: a lost node, or the task itself. */
function suspect(
  job: JobRecord,
  failure: JobFailureRecord,
  byMs: number,
  now: ApplyContext,
): readonly JobRecord[] {
  if (!isUnderWay(job.state) || job.state === "scheduled" || job.suspectedMs !== undefined) {
    return [];
  }
  const { index: changedIndex, atMs: suspectedMs } = now;
  return [{ ...job, failure, suspectedMs, dueMs: byMs, changedIndex }];
}

/** A job whose tasks ended before all of them were seen running has still run. */
function succeed(job: JobRecord, now: ApplyContext): readonly JobRecord[] {
  if (job.state === "scheduled") {
    const starting = enter(job, "starting", now);
    return [starting, ...succeed(starting, now)];
  }
  if (job.state === "starting" || job.state === "recovering") {
    const trail = rendezvous(job, now);
    return [...trail, end(trail[0]!, "succeeded", now)];
  }
  if (job.state !== "running" && job.state !== "checkpointing") return [];
  return [end(job, "succeeded", now)];
}

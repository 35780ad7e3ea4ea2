import type { FailureReason, JobState } from "@heddle/contracts/jobs";
import type { JobFailureRecord, JobRecord, Leaving } from "./records.ts";

/** Everything that can happen to a job. */
export type JobTransition =
  /** Its quota and dependencies were looked at. */
  | { readonly type: "admitted" }
  /** A plan has reserved places: for the whole gang, or in place of the lost tasks. */
  | {
      readonly type: "reserved";
      readonly tasks: number;
      readonly byMs: number;
      /** Parameter servers by shard; those of a gang that is made whole again stay. */
      readonly shards?: readonly string[] | undefined;
    }
  /** Every worker has acknowledged its lease. */
  | { readonly type: "leased" }
  /** Every task runs, or has ended well already. */
  | { readonly type: "rendezvous" }
  /** It must leave its places. */
  | { readonly type: "leave"; readonly leaving: Leaving; readonly byMs: number }
  /** The time of the present state is over: acknowledgement, grace. */
  | { readonly type: "due" }
  /** A task is surely over. */
  | { readonly type: "taskOver" }
  /** Nodes of the attempt are lost; `within` says whether its tolerance covers all that are. */
  | { readonly type: "nodesLost"; readonly within: boolean; readonly failure: JobFailureRecord }
  /** A task of the attempt has failed. */
  | { readonly type: "failed"; readonly failure: JobFailureRecord; readonly retryLimit: number }
  /** A task has failed, and a node of another that nothing was heard of since may be the cause. */
  | { readonly type: "suspected"; readonly failure: JobFailureRecord; readonly byMs: number }
  /** Something that no retry can mend. */
  | { readonly type: "doomed"; readonly failure: JobFailureRecord }
  /** Every task has ended well. */
  | { readonly type: "succeeded" }
  | { readonly type: "cancel" }
  | { readonly type: "resume" };

/** When, by the log, and by which version's rules. */
export interface Moment {
  readonly index: number;
  readonly atMs: number;
  /** The cluster version; see cluster-version.ts. */
  readonly version: number;
}

/** Losses of nodes and devices until the job is given up as NodeLost. */
export const MAX_LOSSES = 100;
const FIRST_BACKOFF_MS = 1_000;
const MAX_BACKOFF_MS = 300_000;
/** The same for starts that a node did not take. */
const MAX_REFUSED_BACKOFF_MS = 30_000;

const TERMINAL: ReadonlySet<JobState> = new Set(["succeeded", "failed", "cancelled"]);
/** States whose attempt goes on. */
const UNDER_WAY: ReadonlySet<JobState> = new Set([
  "scheduled",
  "starting",
  "running",
  "recovering",
]);
/** Failures that a further attempt would meet again. */
const FINAL_REASONS: ReadonlySet<FailureReason> = new Set([
  "DeadlineExceeded",
  "DependencyFailed",
  "CheckpointCorrupt",
  "Unsatisfiable",
]);
/** Failures of the infrastructure: they use up no retry. */
const LOSS_REASONS: ReadonlySet<FailureReason> = new Set(["NodeLost", "GpuFault"]);

export function isTerminal(state: JobState): boolean {
  return TERMINAL.has(state);
}

/** Whether the tasks of the present attempt are to go on. */
export function isUnderWay(state: JobState): boolean {
  return UNDER_WAY.has(state);
}

/**
 * The one table of the lifecycle: every state that the job goes through because of the event, in
 * order; none where the event means nothing to it. Nothing leaves a terminal state, an attempt is
 * only ever raised by a reservation, and a reservation needs that no task of an older one is left.
 */
export function transition(
  job: JobRecord,
  event: JobTransition,
  now: Moment,
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
      return loseNodes(job, event.within, event.failure, now);
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
      // One that was never admitted has that before it still.
      return job.state === "suspended" ? [enter(job, job.leaving?.from ?? "pending", now)] : [];
    default:
      return event satisfies never;
  }
}

function enter(
  job: JobRecord,
  state: JobState,
  now: Moment,
  change: Partial<JobRecord> = {},
): JobRecord {
  return {
    ...job,
    state,
    sinceMs: now.atMs,
    changedIndex: now.index,
    dueMs: undefined,
    suspectedMs: undefined,
    // What nobody has judged yet is no failure of what comes.
    failure: job.suspectedMs === undefined ? job.failure : undefined,
    leaving: undefined,
    ...change,
  };
}

/** What waits no more is promised nothing. */
const OUT_OF_LINE = { promisedStartMs: undefined, placeInLine: undefined };

function end(job: JobRecord, state: JobState, now: Moment, failure?: JobFailureRecord): JobRecord {
  const change = failure ? { failure, endedAtMs: now.atMs } : { endedAtMs: now.atMs };
  return enter(job, state, now, { ...change, notBeforeMs: undefined, ...OUT_OF_LINE });
}

function taskOver(job: JobRecord, now: Moment): JobRecord {
  return { ...job, liveTasks: job.liveTasks - 1, changedIndex: now.index };
}

function reserve(
  job: JobRecord,
  { tasks, byMs, shards }: Extract<JobTransition, { type: "reserved" }>,
  now: Moment,
): readonly JobRecord[] {
  if (job.state === "recovering") {
    const liveTasks = job.liveTasks + tasks;
    return [{ ...job, ...OUT_OF_LINE, liveTasks, changedIndex: now.index }];
  }
  if (job.state !== "pending" || job.liveTasks > 0) return [];
  const change = {
    attempt: job.attempt + 1,
    tasks,
    liveTasks: tasks,
    shards,
    dueMs: byMs,
    notBeforeMs: undefined,
    ...OUT_OF_LINE,
    startedAtMs: undefined,
  };
  return [enter(job, "scheduled", now, change)];
}

function rendezvous(job: JobRecord, now: Moment): readonly JobRecord[] {
  if (job.state !== "starting" && job.state !== "recovering") return [];
  const startedAtMs = job.startedAtMs ?? now.atMs;
  const firstStartedAtMs = job.firstStartedAtMs ?? now.atMs;
  // What it has got over is no failure of what runs now; its events tell of it.
  return [enter(job, "running", now, { startedAtMs, firstStartedAtMs, failure: undefined })];
}

/** What has run may checkpoint first; what has not begun leaves at once. */
function leave(job: JobRecord, leaving: Leaving, byMs: number, now: Moment): readonly JobRecord[] {
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
  return [enter(job, "suspended", now, { leaving: { ...leaving, from }, ...OUT_OF_LINE })];
}

/** Also one that recovers: the tasks that it has not lost may have much to save. */
function hasRun({ state, startedAtMs }: JobRecord): boolean {
  return state === "running" || (state === "recovering" && startedAtMs !== undefined);
}

/** Its places are given up; the tasks that still hold some are ended. */
function left(job: JobRecord, leaving: Leaving, now: Moment): JobRecord {
  if (leaving.why === "suspend") return enter(job, "suspended", now, { leaving });
  return enter(job, "preempted", now, { leaving, preemptions: job.preemptions + 1 });
}

function due(job: JobRecord, now: Moment): readonly JobRecord[] {
  if (job.state === "scheduled") return [enter(job, "pending", now)];
  if (job.suspectedMs !== undefined) {
    const message = `after the end of rank ${job.failure?.rank}, the node of another was not heard of until its lease was over`;
    return loseNodes(job, false, { reason: "NodeLost", message }, now);
  }
  if (job.state !== "checkpointing" || !job.leaving) return [];
  return settle([left(job, job.leaving, now)], now);
}

/** Goes on from states that only wait until every task is over. */
function settle(trail: readonly JobRecord[], now: Moment): readonly JobRecord[] {
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
  within: boolean,
  failure: JobFailureRecord,
  now: Moment,
): readonly JobRecord[] {
  const losses = job.losses + 1;
  if (!isUnderWay(job.state)) return [];
  if (losses > MAX_LOSSES) return [end(job, "failed", now, failure)];
  if (job.state === "scheduled") {
    const notBeforeMs = losses === 1 ? undefined : now.atMs + refusedBackoffMs(losses - 1);
    return settle([enter(job, "pending", now, { losses, notBeforeMs })], now);
  }
  if (within) return [enter(job, "recovering", now, { losses, failure })];
  return settle([enter(job, "retrying", now, { losses, failure })], now);
}

/** A worker that cannot take the task may be chosen again at once, until all losses are used up. */
function refusedBackoffMs(times: number): number {
  return Math.min(MAX_REFUSED_BACKOFF_MS, FIRST_BACKOFF_MS * 2 ** (times - 1));
}

function fail(
  job: JobRecord,
  failure: JobFailureRecord,
  retryLimit: number,
  now: Moment,
): readonly JobRecord[] {
  if (!isUnderWay(job.state)) return [];
  const { reason } = failure;
  if (FINAL_REASONS.has(reason)) return [end(job, "failed", now, failure)];
  if (LOSS_REASONS.has(reason)) return loseNodes(job, false, failure, now);
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

/** Its attempt goes on until it is known what the failure was: a lost node, or the task's own. */
function suspect(
  job: JobRecord,
  failure: JobFailureRecord,
  byMs: number,
  now: Moment,
): readonly JobRecord[] {
  if (!isUnderWay(job.state) || job.state === "scheduled" || job.suspectedMs !== undefined) {
    return [];
  }
  const { index: changedIndex, atMs: suspectedMs } = now;
  return [{ ...job, failure, suspectedMs, dueMs: byMs, changedIndex }];
}

/** A job whose tasks ended before all were seen to run has run all the same. */
function succeed(job: JobRecord, now: Moment): readonly JobRecord[] {
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

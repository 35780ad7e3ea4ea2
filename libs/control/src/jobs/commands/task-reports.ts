import type { SubmitJob } from "@heddle/contracts/api/job-spec";
import { GROUPS_REPORTS, HARDENED } from "../../cluster-version.ts";
import { ACCEPTED, type ControlReply } from "../../command.ts";
import { storageRefusal } from "../../project-storage.ts";
import { messagesAt } from "../../state-messages.ts";
import { artifactBytes } from "../index/job-index.ts";
import type {
  ConfirmFailuresCommand,
  ReportProgressCommand,
  ReportTasksCommand,
  TaskReportEntry,
  WorkerReport,
} from "../records/commands.ts";
import { isUnderWay } from "../records/lifecycle.ts";
import {
  type JobFailureRecord,
  type JobRecord,
  type TaskExitRecord,
  type TaskPhase,
  type TaskReading,
  type TaskRecord,
  taskKey,
} from "../records/records.ts";
import { crashLoop, earlyCrashes } from "../records/recovery.ts";
import {
  failureOf,
  isLost,
  isUnconfirmed,
  lossOf,
  rootCause,
  unconfirmedFailure,
} from "../records/root-cause.ts";
import { requestedShards } from "../records/task-request.ts";
import { quarantineDevice } from "./devices.ts";
import type { JobsTransaction } from "./jobs-transaction.ts";

const PHASE_RANK: Readonly<Record<Exclude<TaskPhase, "lost">, number>> = {
  reserved: 0,
  leased: 1,
  starting: 2,
  running: 3,
  stopping: 4,
  exited: 5,
};

/**
 * Applies workers' reports of their tasks, one after the other. Known states, fenced tasks and tasks of
 * other nodes are ignored.
 */
export function reportTasks(change: JobsTransaction, command: ReportTasksCommand): ControlReply {
  const others = change.version >= GROUPS_REPORTS ? (command.others ?? []) : [];
  for (const report of [command, ...others]) applyReport(change, report, command.statusTimeoutMs);
  return ACCEPTED;
}

function applyReport(
  change: JobsTransaction,
  { nodeId, reports }: WorkerReport,
  statusTimeoutMs: number | undefined,
): void {
  const changed: TaskRecord[] = [];
  const messages = messagesAt(change.version);
  /** Version 1 compared each entry with the state before the report, so a repeated end counted twice. */
  const latest = new Map<string, TaskRecord>();
  const kept = new KeptArtifacts(change);
  for (const entry of reports) {
    const key = taskKey(entry.jobId, entry.attempt, entry.rank);
    const task = latest.get(key) ?? change.state.tasks.get(key);
    if (!task || task.nodeId !== nodeId || !changesTask(task, entry)) continue;
    const next = reported(change, task, entry, kept);
    changed.push(next);
    if (change.version >= HARDENED) latest.set(key, next);
    // Before the job is placed again, which could choose the same device.
    for (const device of entry.sickDevices ?? []) {
      const why = entry.exit?.message ?? messages.unexplainedDeviceFault;
      quarantineDevice(change, { nodeId, device, why });
    }
  }
  putTasks(change, changed, statusTimeoutMs);
}

/** Confirms suspected failures once all other nodes of the job have reported since. */
export function confirmFailures(
  change: JobsTransaction,
  { entries }: ConfirmFailuresCommand,
): ControlReply {
  for (const { jobId, attempt, suspectedMs } of entries) {
    const job = change.state.jobs.get(jobId);
    if (job?.attempt !== attempt || job.suspectedMs !== suspectedMs) continue;
    const failed = rootCause(change.tasksOf(job));
    if (failed) fail(change, job, failed);
  }
  return ACCEPTED;
}

/** Nothing follows a task's exit; a lost task's report counts again once its node is back. */
function changesTask({ phase, incarnation = 0 }: TaskRecord, entry: TaskReportEntry): boolean {
  // A late report of the incarnation that this one replaced.
  if ((entry.incarnation ?? incarnation) !== incarnation) return false;
  return phase === "lost" || PHASE_RANK[entry.phase] > PHASE_RANK[phase];
}

function reported(
  { state, now, version }: JobsTransaction,
  task: TaskRecord,
  entry: TaskReportEntry,
  kept: KeptArtifacts,
): TaskRecord {
  const { phase, exit } = entry;
  const isElastic = (state.specs.get(task.jobId)?.failure_tolerance ?? 0) > 0;
  const next: TaskRecord = {
    ...task,
    phase,
    rendezvous: entry.rendezvous ?? task.rendezvous,
    asked: phase === "stopping" ? true : task.asked,
    ...(isElastic && phase === "running" && { runningAtMs: now.atMs }),
  };
  if (phase !== "exited") return next;
  const message = messagesAt(version).unexplainedExit;
  const unknown = { reason: "Internal" as const, message, endedAtMs: 0 };
  const over = { ...next, exit: kept.withinQuota(exit ?? unknown, task.jobId) };
  return isElastic ? { ...over, earlyCrashes: earlyCrashes(over, now.atMs) } : over;
}

/** What the tasks of one report leave: together it must fit the quotas. */
class KeptArtifacts {
  readonly #change: JobsTransaction;
  /** Keyed by project. */
  readonly #bytes = new Map<string, number>();

  constructor(change: JobsTransaction) {
    this.#change = change;
  }

  /** A task whose artifacts exceed its project's storage quota has failed, and leaves none. */
  withinQuota(exit: TaskExitRecord, jobId: string): TaskExitRecord {
    const { artifacts, ...rest } = exit;
    if (!artifacts) return exit;
    const { state, index, version } = this.#change;
    const { project } = state.jobs.get(jobId)!;
    const bytes = (this.#bytes.get(project) ?? 0) + artifactBytes({ exit });
    const quotas = { projects: state.projects, storage: index.storage, version };
    const refusal = storageRefusal(quotas, project, bytes);
    if (!refusal) {
      this.#bytes.set(project, bytes);
      return exit;
    }
    const message = `its artifacts were not kept: ${refusal.message}`;
    return { ...rest, reason: "StorageExceeded", message };
  }
}

/**
 * Writes changed tasks and updates their jobs: first what the tasks together mean, then which of
 * them have ended.
 */
export function putTasks(
  change: JobsTransaction,
  tasks: readonly TaskRecord[],
  statusTimeoutMs?: number,
): void {
  const overs = new Map<string, number>();
  for (const task of tasks) {
    change.putTask(task);
    overs.set(task.jobId, (overs.get(task.jobId) ?? 0) + (task.phase === "exited" ? 1 : 0));
  }
  for (const [jobId, over] of overs) {
    let job = review(change, change.state.jobs.get(jobId)!, statusTimeoutMs);
    for (let count = 0; count < over; count++) job = change.move(job, { type: "taskOver" });
    // Watchers of the job see its tasks, so the job changes too.
    const { index: changedIndex } = change.now;
    if (job.changedIndex !== changedIndex) change.putJob({ ...job, changedIndex });
  }
}

/** Derives the job's next state from all tasks of its attempt. */
function review(
  change: JobsTransaction,
  job: JobRecord,
  statusTimeoutMs: number | undefined,
): JobRecord {
  if (!isUnderWay(job.state) && job.state !== "checkpointing") return job;
  const tasks = change.tasksOf(job);
  const spec = change.state.specs.get(job.id)!;
  if (tasks.every(isDone) || isDoneWithout(tasks, spec)) {
    return change.move(job, { type: "succeeded" });
  }
  const failure = crashLoop(tasks);
  if (failure) {
    return change.move(job, { type: "failed", failure, retryLimit: spec.retry_limit });
  }
  const stopped = isUnderWay(job.state) ? tasks.find(isStopped) : undefined;
  if (stopped) {
    const failure = stopOf(stopped, change.version);
    return change.move(job, { type: "nodesLost", within: false, isSilent: false, failure });
  }
  const failed = rootCause(tasks);
  if (failed && isUnconfirmed(job, tasks, failed, statusTimeoutMs)) {
    const byMs = change.now.atMs + (statusTimeoutMs ?? 0);
    const failure = unconfirmedFailure(failed, change.version);
    return change.move(job, { type: "suspected", failure, byMs });
  }
  if (failed) return fail(change, job, failed);
  const lost = tasks.filter(isLost);
  const within = lost.length <= spec.failure_tolerance;
  if (lost[0] && !(within && job.state === "recovering")) {
    const failure = lossOf(lost[0]);
    const isSilent = lost.some(({ phase }) => phase === "lost");
    return change.move(job, { type: "nodesLost", within, isSilent, failure });
  }
  if (lost.length > 0) return job;
  if (tasks.every((task) => task.phase === "running" || isDone(task))) {
    return change.move(job, { type: "rendezvous" });
  }
  if (tasks.every(({ phase }) => phase !== "reserved")) return change.move(job, { type: "leased" });
  return job;
}

function fail(change: JobsTransaction, job: JobRecord, failed: TaskRecord): JobRecord {
  const { retry_limit: retryLimit } = change.state.specs.get(job.id)!;
  return change.move(job, { type: "failed", failure: failureOf(failed), retryLimit });
}

/** Training is done once rank 0 is, also without tasks that were lost and not replaced. */
function isDoneWithout(tasks: readonly TaskRecord[], spec: SubmitJob): boolean {
  if (requestedShards(spec) === 0 || !tasks[0] || !isDone(tasks[0])) return false;
  const missing = tasks.filter((task) => !isDone(task));
  const areLost = missing.every((task) => task.phase === "exited" && isLost(task));
  return areLost && missing.length <= spec.failure_tolerance;
}

/** Succeeded without being asked to stop. */
function isDone({ phase, exit, asked }: TaskRecord): boolean {
  return phase === "exited" && exit?.reason === undefined && !asked;
}

/** Succeeded because it was asked to stop, which no command requests of a job that continues. */
function isStopped({ phase, exit, asked }: TaskRecord): boolean {
  return phase === "exited" && exit?.reason === undefined && asked === true;
}

function stopOf({ rank, nodeId }: TaskRecord, version: number): JobFailureRecord {
  const message = messagesAt(version).stoppedRank(rank, nodeId);
  return { reason: "NodeLost", message, rank, nodeId };
}

/**
 * Updates progress and checkpoints of running jobs; readings of older attempts are dropped. A new
 * leader may hold older readings than the log, so readings earlier than the known ones are ignored.
 */
export function reportProgress(
  change: JobsTransaction,
  command: ReportProgressCommand,
): ControlReply {
  for (const { jobId, attempt, ...reading } of command.entries) {
    const job = change.state.jobs.get(jobId);
    if (!job || job.attempt !== attempt || job.liveTasks === 0) continue;
    const progress = later(change, job.progress, reading.progress);
    const checkpoint = later(change, job.checkpoint, reading.checkpoint);
    if (progress === job.progress && checkpoint === job.checkpoint) continue;
    change.putJob({ ...job, changedIndex: change.now.index, progress, checkpoint });
  }
  return ACCEPTED;
}

/**
 * The reading, unless it is earlier than the known one. Version 1 compared the nodes' clocks only.
 */
function later<Reading extends TaskReading>(
  { version }: JobsTransaction,
  known: Reading | undefined,
  reading: Reading | undefined,
): Reading | undefined {
  if (!known || !reading) return reading ?? known;
  const isOfOne = reading.attempt !== undefined && reading.attempt === known.attempt;
  if (!isOfOne || reading.atMs >= known.atMs) return reading;
  return version < HARDENED || isEarlier(reading, known) ? known : reading;
}

/**
 * Whether a reading is earlier than another of the same attempt. Clocks of two nodes are not
 * comparable: there the higher step is later, or else the later arrival.
 */
export function isEarlier(reading: TaskReading, known: TaskReading): boolean {
  if (reading.atMs >= known.atMs) return false;
  const isSameTask = reading.rank === known.rank && reading.incarnation === known.incarnation;
  if (reading.step === undefined || known.step === undefined) return isSameTask;
  return reading.step < known.step || (isSameTask && reading.step === known.step);
}

import type { SubmitJob } from "@heddle/contracts/jobs";
import { HARDENED } from "../../cluster-version.ts";
import { ACCEPTED, type ControlReply } from "../../command.ts";
import type {
  JudgeJobsCommand,
  ReportProgressCommand,
  ReportTasksCommand,
  TaskReportEntry,
} from "../records/commands.ts";
import { isUnderWay } from "../records/lifecycle.ts";
import {
  type JobFailureRecord,
  type JobRecord,
  type TaskPhase,
  type TaskReading,
  type TaskRecord,
  taskKey,
} from "../records/records.ts";
import { crashLoop, earlyCrashes } from "../records/recovery.ts";
import {
  failureOf,
  isLost,
  lossOf,
  rootCause,
  suspicionOf,
  waitsForWord,
} from "../records/root-cause.ts";
import { shardsWanted } from "../records/task-request.ts";
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

/** Takes in what one worker says of its tasks; what is known, fenced or another node's is passed over. */
export function reportTasks(change: JobsTransaction, command: ReportTasksCommand): ControlReply {
  const changed: TaskRecord[] = [];
  for (const entry of command.reports) {
    const key = taskKey(entry.jobId, entry.attempt, entry.rank);
    const task = change.state.tasks.get(key);
    if (!task || task.nodeId !== command.nodeId || !isNews(task, entry)) continue;
    changed.push(reported(change, task, entry));
    // Before its job looks for another place, which would else be the same one.
    for (const device of entry.sickDevices ?? []) {
      const why = entry.exit?.message ?? "a task ended for it";
      quarantineDevice(change, { nodeId: command.nodeId, device, why });
    }
  }
  putTasks(change, changed, command.wordMs);
  return ACCEPTED;
}

/** Failures that waited for word of the other tasks' nodes, and had it, stand. */
export function judgeJobs(change: JobsTransaction, { entries }: JudgeJobsCommand): ControlReply {
  for (const { jobId, attempt, suspectedMs } of entries) {
    const job = change.state.jobs.get(jobId);
    if (job?.attempt !== attempt || job.suspectedMs !== suspectedMs) continue;
    const failed = rootCause(change.tasksOf(job));
    if (failed) fail(change, job, failed);
  }
  return ACCEPTED;
}

/** Nothing follows a task's end; a lost task's word counts again when its node is back. */
function isNews({ phase, incarnation = 0 }: TaskRecord, entry: TaskReportEntry): boolean {
  // A word of the task that this one has replaced came late.
  if ((entry.incarnation ?? incarnation) !== incarnation) return false;
  if (phase === "exited") return false;
  return phase === "lost" || PHASE_RANK[entry.phase] > PHASE_RANK[phase];
}

function reported(
  { state, now }: JobsTransaction,
  task: TaskRecord,
  entry: TaskReportEntry,
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
  const unknown = { reason: "Internal" as const, message: "it ended without a word", endedAtMs: 0 };
  const over = { ...next, exit: exit ?? unknown };
  return isElastic ? { ...over, earlyCrashes: earlyCrashes(over, now.atMs) } : over;
}

/**
 * Writes changed tasks and lets their jobs draw the consequences: first what the tasks together
 * mean, then that those that ended are over.
 */
export function putTasks(
  change: JobsTransaction,
  tasks: readonly TaskRecord[],
  wordMs?: number,
): void {
  const overs = new Map<string, number>();
  for (const task of tasks) {
    change.putTask(task);
    overs.set(task.jobId, (overs.get(task.jobId) ?? 0) + (task.phase === "exited" ? 1 : 0));
  }
  for (const [jobId, over] of overs) {
    let job = review(change, change.state.jobs.get(jobId)!, wordMs);
    for (let count = 0; count < over; count++) job = change.move(job, { type: "taskOver" });
    // Whoever watches the job sees its tasks with it.
    const { index: changedIndex } = change.now;
    if (job.changedIndex !== changedIndex) change.putJob({ ...job, changedIndex });
  }
}

/** What the tasks of a job's attempt together mean for it. */
function review(change: JobsTransaction, job: JobRecord, wordMs: number | undefined): JobRecord {
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
    return change.move(job, { type: "nodesLost", within: false, failure: stopOf(stopped) });
  }
  const failed = rootCause(tasks);
  if (failed && waitsForWord(job, tasks, failed, wordMs)) {
    const byMs = change.now.atMs + (wordMs ?? 0);
    return change.move(job, { type: "suspected", failure: suspicionOf(failed), byMs });
  }
  if (failed) return fail(change, job, failed);
  const lost = tasks.filter(isLost);
  const within = lost.length <= spec.failure_tolerance;
  if (lost[0] && !(within && job.state === "recovering")) {
    const failure = lossOf(lost[0]);
    return change.move(job, { type: "nodesLost", within, failure });
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

/** Training is done where rank 0 is, also without tasks that were lost and not replaced. */
function isDoneWithout(tasks: readonly TaskRecord[], spec: SubmitJob): boolean {
  if (shardsWanted(spec) === 0 || !tasks[0] || !isDone(tasks[0])) return false;
  const missing = tasks.filter((task) => !isDone(task));
  const areLost = missing.every((task) => task.phase === "exited" && isLost(task));
  return areLost && missing.length <= spec.failure_tolerance;
}

/** Ended well and of itself. */
function isDone({ phase, exit, asked }: TaskRecord): boolean {
  return phase === "exited" && exit?.reason === undefined && !asked;
}

/** Ended well, but because it was asked to: of a job that is to go on, nobody who goes by the log asks that. */
function isStopped({ phase, exit, asked }: TaskRecord): boolean {
  return phase === "exited" && exit?.reason === undefined && asked === true;
}

function stopOf({ rank, nodeId }: TaskRecord): JobFailureRecord {
  const message = `rank ${rank} was ended on the node ${nodeId}, though the job was to go on`;
  return { reason: "NodeLost", message, rank, nodeId };
}

/**
 * The latest progress and checkpoint of running jobs; of older attempts they mean nothing. A leader that
 * was just elected may have heard less than the one before it put into the log: what is earlier than
 * what is known is passed over.
 */
export function reportProgress(
  change: JobsTransaction,
  command: ReportProgressCommand,
): ControlReply {
  for (const { jobId, attempt, ...told } of command.entries) {
    const job = change.state.jobs.get(jobId);
    if (!job || job.attempt !== attempt || job.liveTasks === 0) continue;
    const progress = later(change, job.progress, told.progress);
    const checkpoint = later(change, job.checkpoint, told.checkpoint);
    if (progress === job.progress && checkpoint === job.checkpoint) continue;
    change.putJob({ ...job, changedIndex: change.now.index, progress, checkpoint });
  }
  return ACCEPTED;
}

/** What is told, unless it is earlier than what is known. Version 1 went by the nodes' clocks alone. */
function later<Told extends TaskReading>(
  { version }: JobsTransaction,
  known: Told | undefined,
  told: Told | undefined,
): Told | undefined {
  if (!known || !told) return told ?? known;
  const isOfOne = told.attempt !== undefined && told.attempt === known.attempt;
  if (!isOfOne || told.atMs >= known.atMs) return told;
  return version < HARDENED || isEarlier(told, known) ? known : told;
}

/**
 * Whether a reading is earlier than another one of the same attempt. The clocks of two nodes say
 * nothing where the steps or the tasks differ: then a higher step is later, else what comes later.
 */
export function isEarlier(told: TaskReading, known: TaskReading): boolean {
  if (told.atMs >= known.atMs) return false;
  const isSameTask = told.rank === known.rank && told.incarnation === known.incarnation;
  if (told.step === undefined || known.step === undefined) return isSameTask;
  return told.step < known.step || (isSameTask && told.step === known.step);
}

import type { PlanEntry } from "@heddle/scheduler/plan-entry";
import type { JobFailureRecord, JobRecord, TaskRecord } from "./records.ts";

/** The plan entry under which the job waits. */
export function waitingEntry({ id: jobId, state }: JobRecord): PlanEntry {
  return { kind: state === "recovering" ? "recovery" : "job", jobId };
}

/** After this many consecutive early crashes, the rank's loss is its own failure. */
const MAX_EARLY_CRASHES = 3;
/** A crash within this time after the start, by the log, is early. */
const EARLY_MS = 60_000;

/**
 * The rank's count of early crashes after the task's exit: losses by a signal, not of the node. A
 * longer run resets it, so only a rank without progress reaches the limit.
 */
export function earlyCrashes(task: TaskRecord, atMs: number): number | undefined {
  const { runningAtMs = atMs, earlyCrashes: before = 0 } = task;
  return hasCrashed(task) && atMs - runningAtMs < EARLY_MS ? before + 1 : undefined;
}

/** The count that a replacement inherits, also in the next attempt. */
export function crashesTakenOver(
  lost: TaskRecord | undefined,
): Pick<TaskRecord, "earlyCrashes"> | undefined {
  const count = (lost && hasCrashed(lost) && lost.earlyCrashes) || 0;
  // A failure was recorded, so the count restarts.
  return count > 0 && count < MAX_EARLY_CRASHES ? { earlyCrashes: count } : undefined;
}

/** The job's own failure if a rank crashes repeatedly, whatever the tolerance. */
export function crashLoop(tasks: readonly TaskRecord[]): JobFailureRecord | undefined {
  const task = tasks.find(({ earlyCrashes = 0 }) => earlyCrashes >= MAX_EARLY_CRASHES);
  if (!task?.exit) return undefined;
  const { rank, nodeId, earlyCrashes } = task;
  const { message: last = "", exitCode, signal, lastLines } = task.exit;
  const how = `${earlyCrashes} times in a row, each within ${EARLY_MS / 1_000} s of its start`;
  const message = `rank ${rank} was ended by ${signal} ${how}; the last time: ${last}`;
  return { reason: "ExitCode", message, exitCode, signal, rank, nodeId, lastLines };
}

function hasCrashed({ exit }: TaskRecord): boolean {
  return exit?.reason === "NodeLost" && exit.signal !== undefined;
}

/** Ranks of a recovering job that were lost and have certainly ended. */
export function missingRanks(
  tasks: { tasksOf(job: JobRecord): readonly TaskRecord[] },
  job: JobRecord,
): readonly number[] {
  return tasks
    .tasksOf(job)
    .filter(({ phase, exit }) => phase === "exited" && exit?.reason === "NodeLost")
    .map(({ rank }) => rank);
}

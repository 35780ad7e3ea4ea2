import type { JobFailureRecord, JobRecord, TaskRecord } from "./records.ts";

/** Ends the id under which the scheduler places a recovering job's lost tasks. */
export const RECOVERY_SUFFIX = "+recovery";

/** The id of the job that a plan means by this one. */
export function plannedJobId(plannedId: string): string {
  const isRecovery = plannedId.endsWith(RECOVERY_SUFFIX);
  return isRecovery ? plannedId.slice(0, -RECOVERY_SUFFIX.length) : plannedId;
}

/** A rank that so often in a row is ended by a signal soon after its start is lost by its own fault. */
const MAX_EARLY_CRASHES = 3;
/** After its start, by the log: a crash is early before. */
const EARLY_MS = 60_000;

/**
 * What a task's end adds to the count of its rank: a crash is a loss by a signal, not by its node.
 * None once the rank has run for longer, so that only what never gets anywhere adds up.
 */
export function earlyCrashes(task: TaskRecord, atMs: number): number | undefined {
  const { runningAtMs = atMs, earlyCrashes: before = 0 } = task;
  return hasCrashed(task) && atMs - runningAtMs < EARLY_MS ? before + 1 : undefined;
}

/** What the task in the place of a lost one takes over, also in the next attempt. */
export function crashesTakenOver(
  lost: TaskRecord | undefined,
): Pick<TaskRecord, "earlyCrashes"> | undefined {
  const count = (lost && hasCrashed(lost) && lost.earlyCrashes) || 0;
  // A failure was made of it, after which counting begins anew.
  return count > 0 && count < MAX_EARLY_CRASHES ? { earlyCrashes: count } : undefined;
}

/** The job's own failure where a rank crashes again and again, however many may be lost. */
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

/** Ranks of a recovering job that were lost and are surely over. */
export function missingRanks(
  tasks: { tasksOf(job: JobRecord): readonly TaskRecord[] },
  job: JobRecord,
): readonly number[] {
  return tasks
    .tasksOf(job)
    .filter(({ phase, exit }) => phase === "exited" && exit?.reason === "NodeLost")
    .map(({ rank }) => rank);
}

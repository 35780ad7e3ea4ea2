import type { JobRecord, TaskRecord } from "./records.ts";

/** Ends the id under which the scheduler places a recovering job's lost tasks. */
export const RECOVERY_SUFFIX = "+recovery";

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

/** The most tasks that a worker may be configured to take. */
export const MAX_TASKS = 1_024;
const TASKS_PER_CPU = 64;
const MOST_TASKS_BY_DEFAULT = 256;

/** The tasks at a time of a machine, or of a worker's part of it, where its operator does not say. */
export function defaultMaxTasks(cpus: number): number {
  return Math.min(MOST_TASKS_BY_DEFAULT, TASKS_PER_CPU * Math.max(1, cpus));
}

import type { TaskId__Output } from "@heddle/contracts/generated/heddle/v1/TaskId";
import type { TaskStatus } from "@heddle/contracts/generated/heddle/v1/TaskStatus";
import type { TaskPlan } from "../records/task-plan.ts";
import type { TaskStreams } from "./task-streams.ts";

/** The injection token of the LoggedTasks. */
export const LOGGED_TASKS = Symbol("LoggedTasks");

/** A task whose logs are kept here. */
export interface LoggedTask {
  readonly plan: TaskPlan;
  readonly streams: TaskStreams;
}

export type TaskChange = "phase" | "progress" | "output";

/** The tasks of this worker, as their logs see them. */
export interface LoggedTasks {
  tasks(): readonly LoggedTask[];
  find(id: TaskId__Output): LoggedTask | undefined;
  /** A status alone is of a task that never began here. Returns the function that unsubscribes. */
  onChange(listener: (task: LoggedTask | TaskStatus, what: TaskChange) => void): () => void;
  /** The logs of the task are on the disks of a majority of the masters. */
  onLogsShipped(id: TaskId__Output): Promise<void>;
}

import type { LimitedQueue } from "@heddle/base/async/limited-queue";
import type { TaskChange } from "../logs/logged-tasks.ts";
import type { CheckpointLedger } from "./checkpoints/checkpoint-ledger.ts";
import type { Executor } from "./executors/executor.ts";
import type { TaskFiles } from "./inputs/task-inputs.ts";
import type { LeaseKeeper } from "./leases/lease-keeper.ts";
import type { TaskNode } from "./task-node.ts";

/** A task's dependencies on its worker. */
export interface TaskContext {
  readonly node: TaskNode;
  readonly executor: Executor;
  /** The queue for launches of all tasks of the worker: each launch starts several processes. */
  readonly launches: LimitedQueue;
  /** Without it no result counts. */
  readonly lease: Pick<LeaseKeeper, "isLive">;
  readonly checkpoints: CheckpointLedger;
  readonly files: TaskFiles;
  /** Until the task's next check: longer on a worker with many tasks. */
  watchMs(): number;
  /** Called for a change that concerns a master or a reader of logs. */
  onChange(what: TaskChange): void;
}

import type { LimitedQueue } from "@heddle/base/async/limited-queue";
import type { ArtifactStore } from "../artifacts/artifact-store.ts";
import type { CheckpointLedger } from "./checkpoints/checkpoint-ledger.ts";
import type { Executor } from "./executors/executor.ts";

/** A task's dependencies on its worker. */
export interface TaskContext {
  readonly executor: Executor;
  /** Of all tasks of the worker: each launch starts several processes. */
  readonly launches: LimitedQueue;
  readonly nodeName: string;
  /** This node's address for the other tasks. */
  readonly host: string;
  readonly checkpointDirectory: string;
  readonly checkpoints: CheckpointLedger;
  readonly artifacts: ArtifactStore;
  gpus(): readonly { readonly index: number; readonly simulated: boolean }[];
  /** Until the task's next check: longer on a worker with many tasks. */
  watchMs(): number;
  /** Whether this worker still holds the lease; without it no result counts. */
  isLeaseLive(): boolean;
  /** Called for a change that concerns a master or a reader of logs. */
  onChange(what: "phase" | "progress" | "output"): void;
  onFault(error: unknown): void;
}

import type { ArtifactStore } from "../artifacts/artifact-store.ts";
import type { CheckpointLedger } from "./checkpoints/checkpoint-ledger.ts";
import type { Executor } from "./executors/executor.ts";

/** What a task needs of the worker around it. */
export interface TaskContext {
  readonly executor: Executor;
  readonly nodeName: string;
  /** The host under which the other tasks reach this node. */
  readonly host: string;
  readonly checkpointDirectory: string;
  readonly checkpoints: CheckpointLedger;
  readonly artifacts: ArtifactStore;
  gpus(): readonly { readonly index: number; readonly simulated: boolean }[];
  /** Whether this worker still holds the lease; where it does not, nothing counts. */
  isLeaseLive(): boolean;
  /** Something that a master or a reader of logs wants to know has changed. */
  onChange(what: "phase" | "progress" | "output"): void;
  onFault(error: unknown): void;
}

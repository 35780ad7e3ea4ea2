import { join } from "node:path";
import type { EngineOptions } from "@heddle/contracts/engine";
import type { NodeFlags } from "@heddle/node-agent/node-flags";
import type { WorkerOffer } from "@heddle/node-agent/offer-flags";
import type { PodSettings } from "./pod-settings.ts";
import type { SlurmSettings } from "./slurm-settings.ts";

const DEFAULT_MAX_ARTIFACT_BYTES = 50 * 2 ** 30;

/** The injection token of the WorkerOptions. */
export const WORKER_OPTIONS = Symbol("WorkerOptions");

/** A worker's flags: those of every node, and what its operator offers of it. */
export interface WorkerOptions extends NodeFlags, WorkerOffer {
  readonly version: string;
  /** Defaults of engine options that a deployment leaves open. */
  readonly engineDefaults: EngineOptions;
  /** Absent: tasks are processes and containers of this machine. */
  readonly pods?: PodSettings | undefined;
  readonly slurm?: SlurmSettings | undefined;
  /** Hosts of weights and inputs besides the Hugging Face hub's. */
  readonly weightsHosts?: readonly string[] | undefined;
}

/** The directory of all jobs' checkpoints; workers with the same file system share it. */
export function checkpointRootOf({ checkpointDirectory, dataDirectory }: WorkerOptions): string {
  return checkpointDirectory ?? join(dataDirectory, "checkpoints");
}

/** The bound of all artifacts, and of one checkpoint with a second copy. */
export function maxArtifactBytesOf(options: WorkerOptions): number {
  return options.maxArtifactBytes ?? DEFAULT_MAX_ARTIFACT_BYTES;
}

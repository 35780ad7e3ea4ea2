import { z } from "zod";

/** A task of a job, as its executor starts it. */
export interface ExecutorJob {
  /** Letters, digits, `_` and `-`. Names of one worker's jobs begin alike; each is used once. */
  readonly name: string;
  /** For `/bin/sh`. It ends with its task, and with the worker's lease; SIGTERM ends it in 30 s. */
  readonly script: string;
  readonly cpus: number;
  /** 0: no bound. */
  readonly memoryBytes: number;
  readonly gpus: number;
  /** 0: no bound. */
  readonly maxRuntimeMs: number;
  /** The job's name in Heddle. */
  readonly jobName: string;
  readonly project: string;
}

/** What the executor has for all tasks of this worker together. */
export interface ExecutorOffer {
  readonly cpus: number;
  readonly memoryBytes: number;
  /** The model of each. */
  readonly gpus?: readonly string[] | undefined;
}

/** `refused`: the job waits and will never run. */
const JOB_STATES = ["waiting", "running", "refused", "ended", "out-of-memory"] as const;

/** What the outer system says of a job. */
export interface ExecutorJobState {
  readonly name: string;
  readonly state: (typeof JOB_STATES)[number];
  /** Its own words, as why a job waits. */
  readonly detail?: string | undefined;
}

/**
 * Runs the tasks of a worker as jobs elsewhere, on machines that see the worker's data directory
 * under the same name. It keeps nothing itself: any call may be the first of its process.
 */
export interface PluginExecutor {
  readonly name: string;
  /** Asked at the worker's start, and again until it answers. */
  offer(): ExecutorOffer | Promise<ExecutorOffer>;
  /** Resolves once the job is in the list. A `refusal` says that it can never run. */
  submit(job: ExecutorJob): void | Promise<void>;
  /** All jobs whose names begin with `prefix`; a job that is missing has ended. */
  list(prefix: string): readonly ExecutorJobState[] | Promise<readonly ExecutorJobState[]>;
  /** Ends the job, whether it waits or runs. One that has ended is no error. */
  cancel(name: string): void | Promise<void>;
}

/** A call of an executor, as data. */
export type ExecutorQuestion =
  | { readonly ask: "offer" }
  | { readonly ask: "submit"; readonly job: ExecutorJob }
  | { readonly ask: "list"; readonly prefix: string }
  | { readonly ask: "cancel"; readonly job: string };

export const EXECUTOR_CALLS = ["offer", "submit", "list", "cancel"] as const;

/** Jobs of one list, and characters of what is said of one. */
const MAX_JOBS = 16_384;
const MAX_DETAIL = 1_000;
const MAX_GPUS = 1_024;

export const executorOffer = z.strictObject({
  cpus: z.number().min(0).max(1e6),
  memoryBytes: z.int().min(0),
  gpus: z.array(z.string().min(1).max(128)).max(MAX_GPUS).optional(),
});

export const executorJobs = z
  .array(
    z.strictObject({
      name: z.string().max(256),
      state: z.enum(JOB_STATES),
      detail: z
        .string()
        .transform((text) => text.slice(0, MAX_DETAIL))
        .optional(),
    }),
  )
  .max(MAX_JOBS);

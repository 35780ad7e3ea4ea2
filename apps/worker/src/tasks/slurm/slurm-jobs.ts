import type { Log } from "@heddle/observability/logger";
import type { RunnerPlace } from "../runners/runner-task.ts";
import { runSlurm } from "./slurm-cli.ts";

/** How old what is known of the jobs may be: one call of squeue serves all tasks. */
const MAX_AGE_MS = 1_000;

const OVER: ReadonlySet<string> = new Set([
  "BOOT_FAIL",
  "CANCELLED",
  "COMPLETED",
  "DEADLINE",
  "FAILED",
  "NODE_FAIL",
  "OUT_OF_MEMORY",
  "PREEMPTED",
  "REVOKED",
  "TIMEOUT",
]);

/** A job as Slurm reports it. */
export interface SlurmJob {
  readonly id: number;
  readonly state: string;
  /** Why it waits, or how it ended. */
  readonly reason: string;
}

/** The jobs of this worker, by their names, and what Slurm says of them. */
export class SlurmJobs {
  readonly #prefix: string;
  readonly #log: Log;
  #jobs: ReadonlyMap<string, SlurmJob> = new Map();
  /** Submitted or cancelled meanwhile: a list that was begun before does not show it. */
  readonly #submitted = new Map<string, SlurmJob>();
  #readAtMs = Number.NEGATIVE_INFINITY;
  #reading: Promise<void> | undefined;
  #fault = "";

  /** `prefix` is that of the names of this worker's jobs. */
  constructor(prefix: string, log: Log) {
    this.#prefix = prefix;
    this.#log = log;
  }

  /** Rejects with a SlurmError where Slurm does not answer. */
  async start(): Promise<void> {
    await this.#read();
  }

  /** As far as is known; undefined where Slurm has none. Where Slurm is silent the last news count. */
  get(name: string): SlurmJob | undefined {
    if (performance.now() - this.#readAtMs > MAX_AGE_MS) void this.#refresh();
    return this.#submitted.get(name) ?? this.#jobs.get(name);
  }

  /** The names of those that have not ended. */
  get live(): readonly string[] {
    return [...this.#jobs].flatMap(([name, job]) => (hasJobEnded(job) ? [] : [name]));
  }

  /** Rejects with a SlurmError, with what Slurm says. */
  async submit(name: string, options: readonly string[], script: string): Promise<void> {
    const own = ["--parsable", "--quiet", `--job-name=${name}`];
    const answer = await runSlurm("sbatch", [...own, ...options], script);
    const id = Number.parseInt(answer, 10);
    this.#submitted.set(name, { id, state: "PENDING", reason: "" });
    this.#readAtMs = Number.NEGATIVE_INFINITY;
  }

  /** All of this name, whether they wait or run. */
  async cancel(name: string): Promise<void> {
    await runSlurm("scancel", ["--quiet", "--me", `--name=${name}`]);
    this.#readAtMs = Number.NEGATIVE_INFINITY;
  }

  /** For a decision on what there is: rejects where Slurm does not answer. */
  async #read(): Promise<void> {
    const submitted = [...this.#submitted.keys()];
    const format = ["--noheader", "--me", "--states=all", "--format=%i|%T|%r|%j"];
    const lines = (await runSlurm("squeue", format)).split("\n");
    const jobs = new Map<string, SlurmJob>();
    for (const line of lines) {
      const [id, state = "", reason = "", ...rest] = line.split("|");
      const job = { id: Number(id), state, reason };
      const name = rest.join("|");
      if (!name.startsWith(this.#prefix)) continue;
      const other = jobs.get(name);
      if (!other || rankOf(job) > rankOf(other)) jobs.set(name, job);
    }
    this.#jobs = jobs;
    for (const name of submitted) this.#submitted.delete(name);
    this.#readAtMs = performance.now();
    this.#fault = "";
  }

  async #refresh(): Promise<void> {
    this.#reading ??= this.#read()
      .catch((error: Error) => {
        // Tried again as soon as a task asks.
        this.#readAtMs = performance.now();
        if (error.message === this.#fault) return;
        this.#fault = error.message;
        this.#log.warn({ error: error.message }, "the states of Slurm's jobs are not known now");
      })
      .finally(() => {
        this.#reading = undefined;
      });
    await this.#reading;
  }
}

/** One that runs comes before a later one that has ended. */
function rankOf(job: SlurmJob): number {
  return hasJobEnded(job) ? job.id : job.id + 2 ** 40;
}

export function hasJobEnded({ state }: SlurmJob): boolean {
  return OVER.has(state);
}

/** What Slurm says of a task's job, and of the end of a runner that has not reported it. */
export function placeOf(job: SlurmJob | undefined): RunnerPlace | undefined {
  if (!job || !hasJobEnded(job)) return job && { isOver: false };
  if (job.state === "OUT_OF_MEMORY") return { isOver: true, unheard: { outOfMemory: true } };
  return { isOver: true, unheard: { lostBy: `Slurm ended its job ${job.id}: ${jobWords(job)}` } };
}

export function jobWords({ state, reason }: SlurmJob): string {
  return reason === "" || reason === "None" ? state : `${state}, ${reason}`;
}

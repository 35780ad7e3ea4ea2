import { LimitedQueue } from "@heddle/base/async/limited-queue";
import type { Log } from "@heddle/observability/logger";
import type { ExecutorJob, ExecutorJobState } from "@heddle/plugin-kit/points/executors";
import type { RunnerPlace } from "../runners/runner-task.ts";
import type { BatchSystem } from "./batch-place.ts";

/** How old what is known of the jobs may be: one list serves all tasks. */
const MAX_AGE_MS = 1_000;
/** Submits and cancels at a time, and those that may wait; the list waits for none of them. */
const MAX_CALLS = 16;
const MAX_WAITING = 4_096;

/** The jobs of one worker, by their names, and what their system says of them. */
export class BatchJobs {
  readonly #title: string;
  readonly #system: BatchSystem;
  readonly #prefix: string;
  readonly #log: Log;
  readonly #calls: LimitedQueue;
  #jobs: ReadonlyMap<string, ExecutorJobState> | undefined;
  /** Submitted meanwhile: a list that was begun before does not show it. */
  readonly #submitted = new Map<string, ExecutorJobState>();
  #readAtMs = Number.NEGATIVE_INFINITY;
  #reading: Promise<void> | undefined;
  #fault = "";

  /** `prefix` is that of the names of this worker's jobs. */
  constructor(title: string, system: BatchSystem, prefix: string, log: Log) {
    this.#title = title;
    this.#system = system;
    this.#prefix = prefix;
    this.#log = log;
    const full = `${MAX_WAITING} calls of ${title} wait on this worker already`;
    this.#calls = new LimitedQueue(
      { running: MAX_CALLS, waiting: MAX_WAITING },
      () => new Error(full),
    );
  }

  /** Reads the first list. Jobs stay unknown until the system has answered. */
  async start(): Promise<void> {
    await this.#refresh();
  }

  /** As far as is known; undefined where there is none. Without an answer the last news count. */
  get(name: string): ExecutorJobState | undefined {
    if (performance.now() - this.#readAtMs > MAX_AGE_MS) void this.#refresh();
    return this.#submitted.get(name) ?? this.#jobs?.get(name);
  }

  /** The names of those that have not ended; undefined while that is unknown. */
  get live(): readonly string[] | undefined {
    const jobs = this.#jobs;
    return jobs && [...jobs].flatMap(([name, job]) => (hasJobEnded(job) ? [] : [name]));
  }

  /** What is known of a task's job, and of the end of a runner that has not reported it. */
  placeOf(name: string): RunnerPlace | undefined {
    const job = this.get(name);
    if (!job) return this.#jobs ? undefined : { isEnded: false };
    if (!hasJobEnded(job)) return { isEnded: false };
    if (job.state === "out-of-memory") return { isEnded: true, unreported: { outOfMemory: true } };
    const lostBy = `${this.#title} ended its job: ${jobWords(job)}`;
    return { isEnded: true, unreported: { lostBy } };
  }

  /** Rejects with what the system says. */
  async submit(job: ExecutorJob): Promise<void> {
    await this.#calls.run(async () => this.#system.submit(job));
    const { name } = job;
    this.#submitted.set(name, { name, state: "waiting" });
    this.#readAtMs = Number.NEGATIVE_INFINITY;
  }

  async cancel(name: string): Promise<void> {
    await this.#calls.run(async () => this.#system.cancel(name));
    this.#readAtMs = Number.NEGATIVE_INFINITY;
  }

  async #read(): Promise<void> {
    const submitted = [...this.#submitted.keys()];
    const jobs = await this.#system.list(this.#prefix);
    const own = jobs.filter(({ name }) => name.startsWith(this.#prefix));
    this.#jobs = new Map(own.map((job) => [job.name, job]));
    for (const name of submitted) this.#submitted.delete(name);
    this.#readAtMs = performance.now();
    this.#fault = "";
  }

  async #refresh(): Promise<void> {
    this.#reading ??= this.#read()
      .catch((error: Error) => {
        // The next request of a task retries.
        this.#readAtMs = performance.now();
        if (error.message === this.#fault) return;
        this.#fault = error.message;
        const fields = { executor: this.#title, error: error.message };
        this.#log.warn(fields, "the states of the tasks' jobs are not known now");
      })
      .finally(() => {
        this.#reading = undefined;
      });
    await this.#reading;
  }
}

export function hasJobEnded({ state }: ExecutorJobState): boolean {
  return state === "ended" || state === "out-of-memory";
}

export function jobWords({ state, detail = state }: ExecutorJobState): string {
  return detail;
}

import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { AppError } from "@heddle/base/errors";
import type { Log } from "@heddle/observability/logger";
import type { ExecutorJobState } from "@heddle/plugin-kit/points/executors";
import { keyOf, type TaskPlan } from "../../records/task-plan.ts";
import {
  type Executor,
  LaunchError,
  type TaskHandle,
  type TaskLaunch,
} from "../executors/executor.ts";
import { RunnerControl } from "../runners/runner-control.ts";
import { installRunner, type RunnerFiles, removeOlderRunners } from "../runners/runner-files.ts";
import { runnerProgram } from "../runners/runner-program.ts";
import { RunnerTask } from "../runners/runner-task.ts";
import { BatchJobs, hasJobEnded, jobWords } from "./batch-jobs.ts";
import type { BatchPlace } from "./batch-place.ts";
import { batchJob } from "./job-script.ts";

const POLL_MS = 100;
/** For a runner whose job runs: to read what to run, and to start it. */
const START_TIMEOUT_MS = 90_000;
/** A submitted job that the system does not show after this was removed. */
const GONE_MS = 10_000;
/** For the end of an earlier job of the same name. */
const REPLACE_TIMEOUT_MS = 60_000;

/** Runs tasks as jobs of a batch system, on nodes that see the worker's data directory likewise. */
export class BatchExecutor implements Executor {
  readonly name = "process";
  readonly outlivesWorker = true;
  readonly leaseFolder: string;
  readonly #place: BatchPlace;
  readonly #jobs: BatchJobs;
  readonly #prefix: string;
  readonly #runner: RunnerFiles;

  private constructor(
    place: BatchPlace,
    jobs: BatchJobs,
    files: { readonly prefix: string; readonly folder: string; readonly runner: RunnerFiles },
  ) {
    this.#place = place;
    this.#jobs = jobs;
    this.#prefix = files.prefix;
    this.#runner = files.runner;
    this.leaseFolder = join(files.folder, "lease");
  }

  /** Keeps its own files in the data directory. */
  static async find(
    place: BatchPlace,
    nodeId: string,
    dataDirectory: string,
    log: Log,
  ): Promise<BatchExecutor> {
    const { title, system } = place;
    const folder = join(dataDirectory, place.folder);
    const runner = await installRunner(folder);
    const prefix = `heddle-${nodeId.replace(/\W/g, "")}-`;
    const jobs = new BatchJobs(title, system, prefix, log);
    const { cpuMilli, memoryBytes, gpus } = place.offer ?? {};
    log.info({ executor: title, cpuMilli, memoryBytes, gpus: gpus?.length }, "tasks run as jobs");
    return new BatchExecutor(place, jobs, { prefix, folder, runner });
  }

  /** Submits the job and waits until its runner waits for the start. */
  async prepare(launch: TaskLaunch, signal: AbortSignal): Promise<void> {
    const { plan } = launch;
    if (plan.spec.tasks > 1) throw this.#oneTask();
    const control = controlOf(launch);
    const name = this.#nameOf(keyOf(plan.id));
    await this.#removeEarlier(name, signal);
    await control.create();
    const progress = launch.environment["HEDDLE_PROGRESS_FILE"] ?? "";
    await writeFile(progress, "", { flag: "a", mode: 0o600 });
    await this.#submit(name, plan, control);
    // Only now, since it may have secrets and the system's queue may be long.
    await this.#untilRunning(name, signal);
    await control.give(runnerProgram(launch, { control, leaseFolder: this.leaseFolder }));
    await this.#until("ready", name, control, signal);
  }

  async start(launch: TaskLaunch): Promise<TaskHandle> {
    const control = controlOf(launch);
    await control.order({ kind: "start" });
    await this.#until("started", this.#nameOf(keyOf(launch.plan.id)), control);
    return this.#taskOf(launch, control);
  }

  async abandon({ id }: TaskPlan): Promise<void> {
    // The next sweep finds what is left.
    await this.#jobs.cancel(this.#nameOf(keyOf(id))).catch(() => undefined);
  }

  async adopt(launch: TaskLaunch): Promise<TaskHandle | undefined> {
    // The name is derived from the task, so that no record can name another's job.
    return this.#taskOf(launch, controlOf(launch));
  }

  /** While its system fails, what runs there is not known: nothing is ended. */
  async sweep(known: ReadonlySet<string>): Promise<number> {
    if (!this.#place.offer) return 0;
    await this.#jobs.start();
    if (this.#jobs.live?.length === 0) await removeOlderRunners(this.#runner);
    const kept = new Set([...known].map((key) => this.#nameOf(key)));
    const strays = (this.#jobs.live ?? []).filter((name) => !kept.has(name));
    for (const name of strays) await this.#jobs.cancel(name);
    return strays.length;
  }

  get #title(): string {
    return this.#place.title;
  }

  #taskOf({ plan }: TaskLaunch, control: RunnerControl): RunnerTask {
    const name = this.#nameOf(keyOf(plan.id));
    return new RunnerTask(
      { job: name },
      {
        control,
        memoryLimitBytes: plan.spec.memoryBytes,
        lostMessage: `${this.#title} ended its job, as by a cancel, a time limit, a preemption or a lost node`,
        place: () => this.#jobs.placeOf(name),
        remove: () => this.#remove(name),
      },
    );
  }

  async #submit(name: string, plan: TaskPlan, control: RunnerControl): Promise<void> {
    const { folder } = control;
    const job = batchJob(name, plan, { command: this.#runner.command, folder });
    try {
      await this.#jobs.submit(job);
    } catch (error) {
      const isFinal = error instanceof AppError && !error.retryable;
      const message = `${this.#title} did not take the task's job: ${(error as Error).message}`;
      throw new LaunchError(isFinal ? "Unsatisfiable" : "LaunchFailed", message, error);
    }
  }

  /** Left by an interrupted start. */
  async #removeEarlier(name: string, signal: AbortSignal): Promise<void> {
    const untilMs = performance.now() + REPLACE_TIMEOUT_MS;
    while (isLive(this.#jobs.get(name))) {
      signal.throwIfAborted();
      await this.#jobs.cancel(name);
      if (performance.now() > untilMs) {
        const message = `an earlier job ${name} of ${this.#title} does not end`;
        throw new LaunchError("LaunchFailed", message);
      }
      await delay(POLL_MS * 10);
    }
  }

  async #remove(name: string): Promise<void> {
    if (isLive(this.#jobs.get(name))) await this.#jobs.cancel(name);
  }

  /** As long as it waits in the system's queue. Rejects with a LaunchError where it will not run. */
  async #untilRunning(name: string, signal: AbortSignal): Promise<void> {
    const sinceMs = performance.now();
    for (;;) {
      signal.throwIfAborted();
      const job = this.#jobs.get(name);
      if (job?.state === "running") return;
      const waitedMs = performance.now() - sinceMs;
      if (job && hasJobEnded(job)) throw this.#lost(name, jobWords(job));
      if (!job && waitedMs > GONE_MS) throw this.#lost(name, "it was removed");
      if (job?.state === "refused") {
        const message = `${this.#title} will not run the task's job: ${jobWords(job)}`;
        throw new LaunchError("Unsatisfiable", message);
      }
      await delay(POLL_MS);
    }
  }

  /** Rejects with a LaunchError where the runner or the system says that it will not come. */
  async #until(
    kind: "ready" | "started",
    name: string,
    control: RunnerControl,
    signal?: AbortSignal,
  ): Promise<void> {
    const sinceMs = performance.now();
    for (;;) {
      signal?.throwIfAborted();
      for (const event of await control.events()) {
        if (event.kind === kind) return;
        if (event.kind === "failed") throw new LaunchError("LaunchFailed", event.message);
        if (event.kind === "end") throw this.#lost(name, "it was ended before it began");
      }
      const job = this.#jobs.get(name);
      const waitedMs = performance.now() - sinceMs;
      const isGone = job ? hasJobEnded(job) : waitedMs > GONE_MS;
      if (isGone) throw this.#lost(name, `${job ? jobWords(job) : "it was removed"}. ${SHARED}`);
      if (waitedMs > START_TIMEOUT_MS) {
        throw this.#lost(name, `it is silent for ${START_TIMEOUT_MS / 1_000} s. ${SHARED}`);
      }
      await delay(POLL_MS);
    }
  }

  #lost(name: string, words: string): LaunchError {
    const message = `the job ${name} of ${this.#title} did not begin: ${words}`;
    return new LaunchError("LaunchFailed", message);
  }

  #oneTask(): LaunchError {
    const message = `a worker before ${this.#title} runs jobs of one task: give the job one task, or run it on workers of the machines themselves`;
    return new LaunchError("Unsatisfiable", message);
  }

  #nameOf(key: string): string {
    return `${this.#prefix}${key.replaceAll("/", "-")}`;
  }
}

const SHARED =
  "Its machines must see the worker's data directory under the same name, as on a shared file system";

function isLive(job: ExecutorJobState | undefined): boolean {
  return job !== undefined && !hasJobEnded(job);
}

function controlOf({ root, directory }: TaskLaunch): RunnerControl {
  return new RunnerControl(root, directory);
}

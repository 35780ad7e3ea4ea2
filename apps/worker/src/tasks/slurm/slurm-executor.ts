import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { Log } from "@heddle/observability/logger";
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
import { jobOptions, jobScript } from "./job-script.ts";
import { hasJobEnded, jobWords, placeOf, type SlurmJob, SlurmJobs } from "./slurm-jobs.ts";
import type { SlurmPlace } from "./slurm-place.ts";

const POLL_MS = 100;
/** For a runner whose job runs: to read what to run, and to start it. */
const START_TIMEOUT_MS = 90_000;
/** A submitted job that Slurm does not show after this was removed. */
const GONE_MS = 10_000;
/** For the end of an earlier job of the same name. */
const REPLACE_TIMEOUT_MS = 60_000;

const LOST = "Slurm ended its job, as by scancel, a time limit, a preemption or a lost node";
/** What a retry would not mend. */
const REFUSED =
  /node configuration|[Pp]artition|[Aa]ccount|QOS|constraint|[Ii]nvalid|unrecognized|limit/;
/** Reasons to wait that do not pass by themselves. */
const HOPELESS =
  /^(PartitionTimeLimit|PartitionNodeLimit|BadConstraints|InvalidAccount|InvalidQOS|(QOS|Assoc)Max\w*Per(Job|Node)\w*|DependencyNeverSatisfied|launch.failed.requeued.held)/i;

/** Runs tasks as jobs of Slurm, on nodes that see the worker's data directory under the same name. */
export class SlurmExecutor implements Executor {
  readonly name = "process";
  readonly outlivesWorker = true;
  readonly leaseFolder: string;
  readonly #place: SlurmPlace;
  readonly #jobs: SlurmJobs;
  readonly #prefix: string;
  readonly #runner: RunnerFiles;

  private constructor(
    place: SlurmPlace,
    jobs: SlurmJobs,
    files: { readonly prefix: string; readonly folder: string; readonly runner: RunnerFiles },
  ) {
    this.#place = place;
    this.#jobs = jobs;
    this.#prefix = files.prefix;
    this.#runner = files.runner;
    this.leaseFolder = join(files.folder, "lease");
  }

  /** Keeps its own files in the data directory. Rejects where Slurm does not answer. */
  static async find(
    place: SlurmPlace,
    nodeId: string,
    dataDirectory: string,
    log: Log,
  ): Promise<SlurmExecutor> {
    const folder = join(dataDirectory, "slurm");
    const runner = await installRunner(folder);
    const prefix = `heddle-${nodeId.replace(/\W/g, "")}-`;
    const jobs = new SlurmJobs(prefix, log);
    await jobs.start();
    if (jobs.live.length === 0) await removeOlderRunners(runner);
    const { settings, offer } = place;
    const gpus = offer.gpus?.length ?? 0;
    log.info({ partition: settings.partition, gpus }, "tasks run as jobs of Slurm");
    return new SlurmExecutor(place, jobs, { prefix, folder, runner });
  }

  /** Submits the job and waits until its runner waits for the start. */
  async prepare(launch: TaskLaunch, signal: AbortSignal): Promise<void> {
    const { plan } = launch;
    if (plan.spec.tasks > 1) throw new LaunchError("Unsatisfiable", ONE_TASK);
    const control = controlOf(launch);
    const name = this.#nameOf(keyOf(plan.id));
    await this.#removeEarlier(name, signal);
    await control.create();
    const progress = launch.environment["HEDDLE_PROGRESS_FILE"] ?? "";
    await writeFile(progress, "", { flag: "a", mode: 0o600 });
    await this.#submit(name, plan, control);
    // Only now, since it may have secrets and Slurm's queue may be long.
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

  async sweep(known: ReadonlySet<string>): Promise<number> {
    const kept = new Set([...known].map((key) => this.#nameOf(key)));
    const strays = this.#jobs.live.filter((name) => !kept.has(name));
    for (const name of strays) await this.#jobs.cancel(name);
    return strays.length;
  }

  #taskOf({ plan }: TaskLaunch, control: RunnerControl): RunnerTask {
    const name = this.#nameOf(keyOf(plan.id));
    return new RunnerTask(
      { job: name },
      {
        control,
        memoryLimitBytes: plan.spec.memoryBytes,
        lostWords: LOST,
        place: () => placeOf(this.#jobs.get(name)),
        remove: () => this.#remove(name),
      },
    );
  }

  async #submit(name: string, plan: TaskPlan, control: RunnerControl): Promise<void> {
    const script = jobScript(this.#runner.command, control.folder);
    try {
      await this.#jobs.submit(name, jobOptions(plan, this.#place.settings), script);
    } catch (error) {
      const { message } = error as Error;
      const reason = REFUSED.test(message) ? "Unsatisfiable" : "LaunchFailed";
      throw new LaunchError(reason, `Slurm did not take the task's job: ${message}`, error);
    }
  }

  /** Left by an interrupted start. */
  async #removeEarlier(name: string, signal: AbortSignal): Promise<void> {
    const untilMs = performance.now() + REPLACE_TIMEOUT_MS;
    while (isLive(this.#jobs.get(name))) {
      signal.throwIfAborted();
      await this.#jobs.cancel(name);
      if (performance.now() > untilMs) {
        throw new LaunchError("LaunchFailed", `an earlier job ${name} of Slurm does not end`);
      }
      await delay(POLL_MS * 10);
    }
  }

  async #remove(name: string): Promise<void> {
    if (isLive(this.#jobs.get(name))) await this.#jobs.cancel(name);
  }

  /** As long as it waits in Slurm's queue. Rejects with a LaunchError where it will not run. */
  async #untilRunning(name: string, signal: AbortSignal): Promise<void> {
    const sinceMs = performance.now();
    for (;;) {
      signal.throwIfAborted();
      const job = this.#jobs.get(name);
      if (job?.state === "RUNNING") return;
      const waitedMs = performance.now() - sinceMs;
      if (job && hasJobEnded(job)) throw this.#lost(name, jobWords(job));
      if (!job && waitedMs > GONE_MS) throw this.#lost(name, "it was removed");
      if (job?.state === "PENDING" && HOPELESS.test(job.reason)) {
        throw new LaunchError("Unsatisfiable", `Slurm will not run the task's job: ${job.reason}`);
      }
      await delay(POLL_MS);
    }
  }

  /** Rejects with a LaunchError where the runner or Slurm says that it will not come. */
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
    return new LaunchError("LaunchFailed", `the job ${name} of Slurm did not begin: ${words}`);
  }

  #nameOf(key: string): string {
    return `${this.#prefix}${key.replaceAll("/", "-")}`;
  }
}

const ONE_TASK =
  "a worker before Slurm runs jobs of one task: give the job one task, or run it on workers of the machines themselves";
const SHARED =
  "The nodes of Slurm must see the worker's data directory under the same name, as on a shared file system";

function isLive(job: SlurmJob | undefined): boolean {
  return job !== undefined && !hasJobEnded(job);
}

function controlOf({ root, directory }: TaskLaunch): RunnerControl {
  return new RunnerControl(root, directory);
}

import { setTimeout as delay } from "node:timers/promises";
import { SerialQueue } from "@heddle/base/async/serial-queue";
import { toAppError } from "@heddle/base/errors";
import { HiddenValues } from "@heddle/base/hidden-values";
import { repeatedWait } from "@heddle/base/repeated-wait";
import type { Artifact } from "@heddle/contracts/generated/heddle/v1/Artifact";
import type { TaskExit } from "@heddle/contracts/generated/heddle/v1/TaskExit";
import type { TaskStatus } from "@heddle/contracts/generated/heddle/v1/TaskStatus";
import type { TaskStreams } from "../logs/task-streams.ts";
import { MetricHistory } from "../records/metric-history.ts";
import { ProgressFile } from "../records/progress-file.ts";
import type { TaskDirectory } from "../records/task-directory.ts";
import type { TaskMemory, TaskPhaseName } from "../records/task-memory.ts";
import { keyOf, type TaskPlan } from "../records/task-plan.ts";
import { ProgressReporter } from "./checkpoints/progress-reporter.ts";
import {
  type GangPlaces,
  LaunchError,
  NO_PLACES,
  type TaskEnd,
  type TaskHandle,
} from "./executors/executor.ts";
import { type ExitVerdict, exitReason, startVerdict } from "./executors/exit-reason.ts";
import { OutputHold } from "./executors/output-hold.ts";
import type { ProcessScan } from "./executors/process-scan.ts";
import { bringInputs } from "./inputs/task-inputs.ts";
import { PortReservation } from "./port-reservation.ts";
import type { TaskContext } from "./task-context.ts";
import { taskLaunch } from "./task-launch.ts";
import { TaskSpan } from "./task-span.ts";
import { TaskWatch } from "./task-watch.ts";

/** How often a task that is to leave is checked. */
const LEAVE_MS = 50;
const PROGRESS_MS = 250;
const LAST_LINE_COUNT = 50;
/** The share of a checkpoint's grace that is reserved for the exit on SIGTERM. */
const LEAVE_SHARE = 0.2;
const MIN_LEAVE_MS = 1_000;
/** How long an ended task waits for the second copy of its last checkpoint. */
const MAX_COPY_MS = 60_000;

const OUTPUT_LOST: ExitVerdict = {
  reason: "NodeLost",
  message: "the disk of its worker is full: its output is lost",
};

/** One task on this worker, from its lease to its end. */
export class Task {
  readonly plan: TaskPlan;
  readonly directory: TaskDirectory;
  readonly streams: TaskStreams;
  readonly span: TaskSpan;
  readonly #context: TaskContext;
  readonly #progress: ProgressReporter;
  readonly #ending = new AbortController();
  readonly #hold: OutputHold;
  #phase: TaskPhaseName = "leased";
  #port: PortReservation | undefined;
  #rendezvous = "";
  #handle: TaskHandle | undefined;
  #startedUnixMs: number | undefined;
  #exit: TaskExit | undefined;
  #verdict: ExitVerdict | undefined;
  #stopWhy: string | undefined;
  /** The condition of its job that was false, so that it did not run. */
  #skipped: string | undefined;
  /** While it is stopping: the monotonic time of the kill, and whether it may checkpoint. */
  #stop: { killAtMs: number; checkpoint: boolean } | undefined;
  #work: Promise<void> = Promise.resolve();
  #forgotten = false;
  /** Values of secrets that its program knows. */
  #hidden = new HiddenValues([]);
  /** Serializes changes of its directory, until the directory is removed. */
  readonly #keeping = new SerialQueue();
  readonly #onFault = (error: unknown) => {
    const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
    const fields = { task: keyOf(this.plan.id), error: text };
    this.#context.node.log.error(fields, "a task's supervision failed");
  };
  #removed = false;

  constructor(
    plan: TaskPlan,
    directory: TaskDirectory,
    streams: TaskStreams,
    context: TaskContext,
  ) {
    this.plan = plan;
    this.directory = directory;
    this.streams = streams;
    this.span = new TaskSpan(plan);
    this.#context = context;
    this.#progress = new ProgressReporter({
      file: new ProgressFile(directory.root, directory.progressName),
      history: new MetricHistory(
        streams.metricStore(() => this.#now()),
        this.#onFault,
      ),
      checkpoints: context.checkpoints,
      intervalMs: plan.spec.progressIntervalMs - PROGRESS_MS / 2,
      onFault: this.#onFault,
    });
    this.#hold = new OutputHold(streams);
  }

  get phase(): TaskPhaseName {
    return this.#phase;
  }

  /** Resolves when pending work is done; for tests and for a worker's end. */
  get settled(): Promise<void> {
    return this.#work;
  }

  status(): TaskStatus {
    return {
      task: this.plan.id,
      phase: this.#phase,
      rendezvous: this.#rendezvous,
      exit: this.#exit,
      progress: this.#hold.withHoldReason(this.#progress.reported),
      cluster: this.plan.cluster,
    };
  }

  /** Prepares the task: makes the directory and reserves a port. */
  async lease(): Promise<void> {
    await this.#context.checkpoints.makeDirectory();
    const { algorithm, config } = this.plan.spec;
    if (algorithm !== "") await this.directory.writeConfig(config);
    this.#port = await PortReservation.forTask(this.plan, this.#context);
    this.#rendezvous = this.#port.address;
    await this.#remember();
  }

  /** Releases what it holds after a failed lease. */
  async abandon(): Promise<void> {
    this.span.end("LaunchFailed");
    await this.#port?.release();
    await this.streams.close();
  }

  /** Continues the task of an earlier process of this worker; without `adopt` it is ended. */
  async resume(memory: TaskMemory, adopt: boolean): Promise<void> {
    this.#phase = memory.phase;
    this.#rendezvous = memory.rendezvous;
    this.#startedUnixMs = memory.startedUnixMs;
    this.#exit = memory.exit;
    this.#forgotten = memory.forgotten ?? false;
    if (memory.phase === "exited") return;
    const { executor } = this.#context;
    const known = memory.handle;
    const handle =
      known === undefined
        ? undefined
        : await executor.adopt(taskLaunch(this, this.#context, NO_PLACES), known);
    if (!handle) {
      this.#verdict = { reason: "NodeLost", message: "its worker was restarted before it ran" };
      return this.#onEnd({});
    }
    this.#handle = handle;
    this.#phase = "running";
    // The earlier process may have stopped it.
    await handle.hold(false);
    if (!adopt) this.fence("its worker was restarted after the lease had expired");
    this.#run(this.#follow(handle));
  }

  /** All tasks of the gang are leased. Idempotent. */
  start(places: GangPlaces): void {
    if (this.#phase !== "leased") return;
    this.#setPhase("starting");
    this.#run(this.#begin(places));
  }

  /** Asks the task to leave; a later call can only shorten the grace. */
  stop(options: { checkpoint: boolean; graceMs: number; why: string }): void {
    if (this.#phase === "exited") return;
    const killAtMs = performance.now() + options.graceMs;
    this.#stopWhy ??= options.why;
    if (this.#stop) {
      this.#stop.killAtMs = Math.min(this.#stop.killAtMs, killAtMs);
      this.#stop.checkpoint &&= options.checkpoint;
      return;
    }
    this.#stop = { killAtMs, checkpoint: options.checkpoint };
    const isRunning = this.#handle !== undefined;
    this.#setPhase("stopping");
    this.#ending.abort();
    if (isRunning) void this.#leave().catch(this.#onFault);
    else if (!this.#startedUnixMs) this.#run(this.#onEnd({}));
  }

  /** Requests a checkpoint; the task continues. */
  async checkpoint(): Promise<void> {
    const signal = (this.plan.spec.checkpointSignal || "SIGUSR1") as NodeJS.Signals;
    if (this.#phase === "running") await this.#handle?.signal(signal, true);
  }

  /** The lease has expired: it is killed at once, and later results do not count. */
  fence(why: string): void {
    if (this.#phase === "exited") return;
    this.end({ reason: "NodeLost", message: why });
    this.#handle?.kill().catch(this.#onFault);
    this.#run(this.streams.seal());
  }

  /** Ends it for a reason of this worker; within the grace it may save its state. */
  end(verdict: ExitVerdict, graceMs = 0): void {
    this.#verdict ??= verdict;
    this.stop({ checkpoint: graceMs > 0, graceMs, why: verdict.message });
  }

  /** The masters have released its status: files of its program are removed, its logs stay. */
  async retire(): Promise<void> {
    this.#forgotten = true;
    await this.#remember();
    this.#inTurn(() => this.directory.removeWork()).catch(this.#onFault);
  }

  /** Removes the directory of the task, logs included. */
  remove(): Promise<void> {
    return this.#inTurn(async () => {
      this.#removed = true;
      await this.streams.close();
      await this.directory.remove(this.#onFault);
    });
  }

  killNow(scan: ProcessScan): void {
    this.#handle?.killNow(scan);
  }

  async #begin(places: GangPlaces): Promise<void> {
    const [{ executor, launches, files }, { signal }] = [this.#context, this.#ending];
    this.#startedUnixMs = Date.now();
    this.#hidden = new HiddenValues(Object.values(places.secretVariables));
    try {
      const launch = taskLaunch(this, this.#context, places);
      await this.#context.checkpoints.restore(this.plan.spec.resumeFrom);
      this.#skipped = await bringInputs(this.plan, this.directory, files.inputs, signal);
      if (this.#skipped !== undefined) return await this.#onEnd({ exitCode: 0 });
      await executor.prepare(launch, signal);
      this.#handle = await launches.run(async () => {
        await this.#port?.release();
        signal.throwIfAborted();
        return executor.start(launch);
      }, signal);
    } catch (error) {
      await executor.abandon?.(this.plan);
      if (signal.aborted) return await this.#onEnd({});
      if (!(error instanceof LaunchError)) this.#onFault(error);
      this.#verdict = startVerdict(error, this.#context.files.disk.note(error));
      return await this.#onEnd({});
    }
    await this.#follow(this.#handle, true);
  }

  /** Watches the task until it has ended, and then reports how. */
  async #follow(handle: TaskHandle, isNew = false): Promise<void> {
    try {
      if (isNew) await this.#onStarted();
      const end = await this.#watch(handle);
      await this.#observe();
      if (!this.#context.lease.isLive) this.fence("it ended after the lease had expired");
      await this.#readProgress();
      await this.#context.checkpoints.settled();
      if (this.#context.lease.isLive) await this.#copied();
      await this.#onEnd(end);
    } catch (error) {
      await this.#onUnwatched(handle, error);
    }
  }

  async #onStarted(): Promise<void> {
    await this.#remember();
    if (this.#stop) void this.#leave().catch(this.#onFault);
    else this.#setPhase("running");
  }

  /**
   * A task that is not recorded or cannot be watched would hang forever: it is killed, and its end
   * is reported.
   */
  async #onUnwatched(handle: TaskHandle, error: unknown): Promise<void> {
    this.#onFault(error);
    const reason = this.#context.files.disk.note(error) ? "NodeLost" : "Internal";
    const message = `its worker could not watch it any more, and killed it: ${toAppError(error).message}`;
    this.#verdict ??= { reason, message };
    await handle.kill();
    await this.#onEnd(await handle.exited);
  }

  async #watch(handle: TaskHandle): Promise<TaskEnd> {
    const awayMs = Date.now() - (this.#startedUnixMs ?? Date.now());
    const startedAtMs = performance.now() - awayMs;
    const watch = new TaskWatch(this.plan, this.directory, startedAtMs, performance.now());
    let progressAtMs = 0;
    let checkpointAtMs = performance.now();
    const exited = repeatedWait(handle.exited);
    for (;;) {
      const end = await exited(this.#context.watchMs());
      if (end) return end;
      await this.#observe();
      if (!this.#stop && (await this.#hold.update(handle))) this.#onHold();
      const nowMs = performance.now();
      if (this.#hold.isHeld) watch.onHeld(nowMs);
      if (nowMs - progressAtMs >= PROGRESS_MS) {
        progressAtMs = nowMs;
        await this.#readProgress(watch);
      }
      const { checkpointIntervalMs } = this.plan.spec;
      if (checkpointIntervalMs > 0 && nowMs - checkpointAtMs >= checkpointIntervalMs) {
        checkpointAtMs = nowMs;
        await this.checkpoint();
      }
      const verdict = this.#verdict ? undefined : await watch.check(handle, nowMs);
      // A task past its time may still save its state; any other violation ends it at once.
      const isLate = verdict?.reason === "DeadlineExceeded";
      if (verdict) this.end(verdict, isLate ? this.plan.spec.graceMs : 0);
    }
  }

  /** Reports to the masters that it was stopped, or continues. */
  #onHold(): void {
    if (!this.#hold.isHeld) this.#progress.onResumed();
    this.#context.onChange("progress");
  }

  async #observe(): Promise<void> {
    if (await this.streams.observe(() => this.#now())) this.#context.onChange("output");
  }

  /** Undefined once its lease has expired: what it wrote then does not count. */
  #now(): number | undefined {
    return this.#context.lease.isLive ? Date.now() : undefined;
  }

  async #readProgress(watch?: TaskWatch): Promise<void> {
    const { lease, onChange } = this.#context;
    const isLeaseLive = () => lease.isLive;
    const onStep = (step: number) => watch?.onStep(step, performance.now());
    if (await this.#progress.read(isLeaseLive, onStep, watch === undefined)) onChange("progress");
  }

  /** The last checkpoint is reported once its second copy is made, or at the timeout. */
  async #copied(): Promise<void> {
    const leftMs = this.#stop ? this.#stop.killAtMs - performance.now() : MAX_COPY_MS;
    if (await this.#progress.settle(leftMs)) this.#context.onChange("progress");
  }

  /** Retries a second copy that failed. */
  copyAgain(): void {
    void this.#context.checkpoints.copyLatest().catch(this.#onFault);
  }

  /** A checkpoint where requested, then SIGTERM, then the kill. */
  async #leave(): Promise<void> {
    const stop = this.#stop;
    if (!stop || !this.#handle) return;
    if (await this.#hold.release(this.#handle)) this.#onHold();
    const graceMs = stop.killAtMs - performance.now();
    if (stop.checkpoint && graceMs > 0) await this.#leaveWithCheckpoint(this.#handle);
    if (stop.killAtMs > performance.now()) await this.#handle.signal("SIGTERM");
    while (this.#phase !== "exited") {
      if (performance.now() >= stop.killAtMs) return this.#handle.kill();
      await delay(LEAVE_MS);
    }
  }

  /**
   * Resolves when a checkpoint is durable or this rank's part of it saved, when none can come, or
   * when time is short.
   */
  async #leaveWithCheckpoint(handle: TaskHandle): Promise<void> {
    const stop = this.#stop;
    if (!stop) return;
    const { reported, keptCount } = this.#progress;
    const graceMs = stop.killAtMs - performance.now();
    const keepMs = Math.min(graceMs / 2, Math.max(MIN_LEAVE_MS, graceMs * LEAVE_SHARE));
    const signal = (this.plan.spec.checkpointSignal || "SIGUSR1") as NodeJS.Signals;
    if ((await handle.signal(signal, true)) === 0) return;
    while (this.#phase !== "exited" && stop.checkpoint) {
      const { reported: now, keptCount: kept } = this.#progress;
      if (now?.checkpointUnixMs !== reported?.checkpointUnixMs || kept > keptCount) return;
      if (performance.now() >= stop.killAtMs - keepMs) return;
      await delay(LEAVE_MS);
    }
  }

  async #onEnd(end: TaskEnd): Promise<void> {
    if (this.#exit) return;
    const asked = this.#stopWhy !== undefined;
    const onFault = this.#onFault;
    await this.#port?.release();
    // An error with its files must not hide the end from the masters.
    const isOutputKept = await this.streams.seal().catch(onFault);
    if (isOutputKept === false && !asked) this.#verdict ??= OUTPUT_LOST;
    const isDone = end.exitCode === 0 && !asked && !this.#verdict;
    const artifacts = isDone ? await this.#keepArtifacts() : [];
    const verdict = this.#verdict;
    const saidLines = await this.streams.lastLines(LAST_LINE_COUNT).catch((error: unknown) => {
      onFault(error);
      return [];
    });
    const lastLines = saidLines.map((line) => this.#hidden.hide(line));
    const aside = asked && !verdict ? `stopped: ${this.#stopWhy}` : this.#skipped;
    const { reason, message } =
      aside === undefined ? exitReason(end, lastLines, verdict) : { reason: "", message: aside };
    const { exitCode, signal = "" } = end;
    const endedUnixMs = Date.now();
    const sickDevices = [...(verdict?.sickDevices ?? [])];
    const kept = reason === "" ? artifacts : [];
    const how = { exitCode, signal, reason, message, sickDevices, artifacts: kept };
    this.#exit = { ...how, lastLines, endedUnixMs, asked };
    this.#phase = "exited";
    await this.#remember().catch(onFault);
    this.#context.onChange("phase");
  }

  /** A task whose artifacts cannot be stored has failed. */
  async #keepArtifacts(): Promise<Artifact[]> {
    const { files, lease } = this.#context;
    try {
      const kept = await files.artifacts.keep(
        this.plan.id,
        this.directory.root,
        this.directory.artifactsName,
      );
      // It may have taken long: files of gigabytes are read for their digests.
      if (!lease.isLive) this.#verdict ??= { reason: "NodeLost", message: "its lease has expired" };
      return kept;
    } catch (error) {
      const message = `its artifacts were not kept: ${toAppError(error).message}`;
      this.#verdict ??= { reason: "Internal", message };
      return [];
    }
  }

  #setPhase(phase: TaskPhaseName): void {
    this.#phase = phase;
    this.#context.onChange("phase");
  }

  #run(work: Promise<unknown>): void {
    const before = this.#work;
    this.#work = Promise.all([before, work]).then(() => {}, this.#onFault);
  }

  #remember(): Promise<void> {
    const memory: TaskMemory = {
      plan: this.plan,
      phase: this.#phase,
      rendezvous: this.#rendezvous,
      startedUnixMs: this.#startedUnixMs,
      handle: this.#handle?.record,
      exit: this.#exit,
      forgotten: this.#forgotten,
    };
    return this.#inTurn(() => this.directory.writeRecord(memory));
  }

  /**
   * Serialized: a record that is written during the removal of the directory would leave both
   * behind.
   */
  #inTurn(work: () => Promise<void>): Promise<void> {
    return this.#keeping.run(() => (this.#removed ? undefined : work()));
  }
}

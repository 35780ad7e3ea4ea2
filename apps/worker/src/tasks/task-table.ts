import { mkdir } from "node:fs/promises";
import { availableParallelism } from "node:os";
import { LimitedQueue } from "@heddle/base/async/limited-queue";
import { BoundedMap } from "@heddle/base/collections/bounded-map";
import { toAppError } from "@heddle/base/errors";
import { removeStaleSockets } from "@heddle/base/temporary-socket";
import type { TaskId__Output } from "@heddle/contracts/generated/heddle/v1/TaskId";
import type { TaskStatus } from "@heddle/contracts/generated/heddle/v1/TaskStatus";
import { MAX_TASKS } from "@heddle/contracts/task-places";
import type { OnModuleDestroy, OnModuleInit } from "@nestjs/common";
import type { ArtifactStore } from "../artifacts/artifact-store.ts";
import type { LoggedTasks, TaskChange } from "../logs/logged-tasks.ts";
import { TaskStreams } from "../logs/task-streams.ts";
import { TaskDirectory } from "../records/task-directory.ts";
import { taskMemory } from "../records/task-memory.ts";
import { keyOf, type TaskPlan } from "../records/task-plan.ts";
import type { CheckpointCopies } from "./checkpoints/checkpoint-copies.ts";
import { CheckpointFolders } from "./checkpoints/checkpoint-folders.ts";
import { CheckpointLedger } from "./checkpoints/checkpoint-ledger.ts";
import { DiskFault } from "./disk-fault.ts";
import { type GangPlaces, LaunchError } from "./executors/executor.ts";
import type { ExitVerdict } from "./executors/exit-reason.ts";
import { ProcessScan } from "./executors/process-scan.ts";
import type { InputSources } from "./inputs/task-inputs.ts";
import type { LeaseKeeper } from "./leases/lease-keeper.ts";
import { Task } from "./task.ts";
import type { TaskContext } from "./task-context.ts";
import type { TaskNode } from "./task-node.ts";
import type { WorkerExecutors } from "./worker-executors.ts";

/** The most tasks that the masters have not released, and the most whose logs are to be shipped. */
const maxTasks = 2 * MAX_TASKS;
const MAX_RETIRED = 512;
/** Ends of tasks that never began here, kept until the master has them in its log. */
const MAX_TOMBSTONES = 4_096;

/** Launches at a time; each keeps a core busy for some 50 ms. */
const maxLaunching = Math.max(2, availableParallelism());

/** Between two checks of a running task's streams, progress and bounds. */
const WATCH_MS = 100;
/** Likewise between any two tasks' checks on average, which bounds their cost. */
const WATCH_EACH_MS = 4;

/** The leader logs progress more often than this. */
const FRESH_PROGRESS_MS = 15_000;
/** Between two attempts at second copies, and removals of what killed processes have left. */
const UPKEEP_MS = 3_600_000;

/** The injection token of the TaskPlaces. */
export const TASK_PLACES = Symbol("TaskPlaces");

/** Where tasks keep their files. */
export interface TaskPlaces {
  /** The root of the tasks' directories. */
  readonly root: string;
  /** The most bytes of each stream of a task. */
  readonly maxLogBytes: number;
  /** Checkpoints by job; workers with the same file system share them. */
  readonly checkpointRoot: string;
  /** Their second copies, where there is a place for them. */
  readonly copies: CheckpointCopies | undefined;
  /** How it has what its tasks start with. */
  readonly inputs: InputSources;
}

/**
 * All tasks of this worker. Commands of masters are idempotent. A worker with an expired lease only
 * ends its tasks.
 */
export class TaskTable implements LoggedTasks, OnModuleInit, OnModuleDestroy {
  readonly #node: TaskNode;
  readonly #places: TaskPlaces;
  readonly #executors: WorkerExecutors;
  readonly #lease: LeaseKeeper;
  readonly #artifacts: ArtifactStore;
  readonly #tasks = new Map<string, Task>();
  /** Forgotten by the masters; only their logs still count. */
  readonly #retired = new Map<string, Task>();
  readonly #tombstones = new BoundedMap<string, TaskStatus>(MAX_TOMBSTONES);
  readonly #leasing = new Set<string>();
  readonly #launches = new LimitedQueue(
    { running: maxLaunching, waiting: maxTasks },
    () => new LaunchError("LaunchFailed", `${maxTasks} tasks wait for their launch here`),
  );
  readonly #listeners = new Set<(task: Task | TaskStatus, what: TaskChange) => void>();
  /** The checkpoints of jobs without a task here. */
  readonly checkpoints: CheckpointFolders;
  readonly disk: DiskFault;
  readonly #onRemovalFault = (error: unknown) => {
    const { message } = toAppError(error);
    this.#node.log.warn({ error: message }, "what a task has left could not be removed");
  };
  #closing = false;
  #upkeep: NodeJS.Timeout | undefined;
  readonly #onExit = () => this.killNow();
  /** Refused commands of older attempts. */
  fenced = 0;

  constructor(
    node: TaskNode,
    places: TaskPlaces,
    executors: WorkerExecutors,
    lease: LeaseKeeper,
    artifacts: ArtifactStore,
  ) {
    this.#node = node;
    this.#places = places;
    this.#executors = executors;
    this.#lease = lease;
    this.#artifacts = artifacts;
    this.disk = new DiskFault(places.root, node.log);
    const runs = (jobId: string) =>
      [...this.#tasks.values()].some(({ plan }) => plan.id.jobId === jobId);
    const onEnded = async (jobId: string) => places.copies?.dropJob(jobId);
    this.checkpoints = new CheckpointFolders(places.checkpointRoot, runs, node.log, onEnded);
    lease.onExpired(() => this.#fenceAll("the worker's lease has expired"));
  }

  /** Takes over the tasks that an earlier process of this worker left, or ends them. */
  async onModuleInit(): Promise<void> {
    const { root } = this.#places;
    await mkdir(root, { recursive: true, mode: 0o700 });
    TaskDirectory.removeRest(root).catch(this.#onRemovalFault);
    for (const directory of await TaskDirectory.all(root)) await this.#tryRestore(directory);
    await this.sweep();
    this.#upkeep = setInterval(() => this.#keepUp(), UPKEEP_MS).unref();
    process.on("exit", this.#onExit);
  }

  /** Ends what executors still run of tasks that are not here. No task is taken meanwhile. */
  async sweep(): Promise<void> {
    const known = new Set(
      [...this.#tasks].filter(([, task]) => task.phase !== "exited").map(([key]) => key),
    );
    for (const executor of this.#executors.all) {
      const count = await executor.sweep(known);
      if (count > 0) this.#node.log.warn({ count }, "ended processes of unknown tasks");
    }
  }

  /** Sockets of processes that were killed with this worker: none may start here again. */
  async onModuleDestroy(): Promise<void> {
    clearInterval(this.#upkeep);
    this.disk.close();
    await removeStaleSockets();
    process.off("exit", this.#onExit);
  }

  #keepUp(): void {
    void removeStaleSockets();
    for (const task of this.tasks()) task.copyAgain();
  }

  /** Returns the function that unsubscribes. */
  onChange(listener: (task: Task | TaskStatus, what: TaskChange) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** The statuses of all tasks that the masters have not released. */
  statuses(): TaskStatus[] {
    return [
      ...[...this.#tasks.values()].map((task) => task.status()),
      ...this.#tombstones.values(),
    ];
  }

  /** The fresh progress of running tasks for heartbeats: the leader has logged older progress. */
  progress(): TaskStatus[] {
    const unixMs = Date.now() - FRESH_PROGRESS_MS;
    const statuses: TaskStatus[] = [];
    for (const live of this.#tasks.values()) {
      const { task, phase, progress } = live.status();
      if (phase === "exited" || Number(progress?.atUnixMs ?? 0) < unixMs) continue;
      statuses.push({ task, phase, progress });
    }
    return statuses;
  }

  /** Tasks whose logs are kept. */
  tasks(): Task[] {
    return [...this.#tasks.values(), ...this.#retired.values()];
  }

  find(id: TaskId__Output): Task | undefined {
    const key = keyOf(id);
    return this.#tasks.get(key) ?? this.#retired.get(key);
  }

  /** Reserves a place for the task; its status reports the outcome. */
  async lease(plan: TaskPlan): Promise<void> {
    const key = keyOf(plan.id);
    const known = this.#tasks.get(key);
    if (known) return this.#changed(known, "phase");
    if (this.#leasing.has(key) || !this.#lease.isLive || this.#isFenced(plan.id)) return;
    const refusal = this.#refusal(plan);
    if (refusal) return this.#bury(plan.id, refusal);
    this.#leasing.add(key);
    this.#watchLease();
    try {
      // The cluster before a restore may have had the same attempt: only its log is left.
      await this.#remove(key);
      const task = await this.#take(plan);
      this.#tasks.set(key, task);
      this.#node.log.info(
        { task: key, devices: [...plan.devices], ...task.span.fields },
        "a task is leased",
      );
      this.#changed(task, "phase");
    } catch (error) {
      this.disk.note(error);
      const text = error instanceof Error ? error.message : String(error);
      const message = `the worker ${this.#node.name} could not take it: ${text}`;
      const reason = error instanceof LaunchError ? error.reason : "NodeLost";
      this.#bury(plan.id, { reason, message });
    } finally {
      this.#leasing.delete(key);
    }
  }

  async #take(plan: TaskPlan): Promise<Task> {
    const task = await this.#create(plan, TaskDirectory.of(this.#places.root, plan.id));
    try {
      await task.lease();
      return task;
    } catch (error) {
      await task.abandon();
      await task.directory.remove(this.#onRemovalFault);
      throw error;
    }
  }

  start(id: TaskId__Output, places: GangPlaces): void {
    if (!this.#lease.isLive || this.#isFenced(id)) return;
    this.#tasks.get(keyOf(id))?.start(places);
  }

  stop(id: TaskId__Output, how: { checkpoint: boolean; graceMs: number; why: string }): void {
    const task = this.#tasks.get(keyOf(id));
    task?.stop(how);
    if (task) this.#changed(task, "phase");
    else this.#bury(id, { reason: "", message: `never started: ${how.why}` });
  }

  checkpoint(id: TaskId__Output): void {
    void this.#tasks.get(keyOf(id))?.checkpoint();
  }

  /** The masters have its end in their log, and may have refused its artifacts. */
  async forget(id: TaskId__Output, dropsArtifacts = false): Promise<void> {
    if (dropsArtifacts) await this.#artifacts.drop(id);
    const key = keyOf(id);
    this.#tombstones.delete(key);
    const task = this.#tasks.get(key);
    if (task?.phase !== "exited") return;
    this.#tasks.delete(key);
    this.#retired.set(key, task);
    await task.retire();
    this.#changed(task, "phase");
    const oldest = this.#retired.keys().next().value;
    if (this.#retired.size > MAX_RETIRED && oldest)
      this.#remove(oldest).catch(this.#onRemovalFault);
  }

  /** The logs of the task are on the disks of a majority of the masters. */
  async onLogsShipped(id: TaskId__Output): Promise<void> {
    const key = keyOf(id);
    if (this.#retired.has(key)) await this.#remove(key);
  }

  /** A device is faulty: only its own tasks end. */
  onGpuFault(index: number, fault: string): void {
    for (const task of this.#tasks.values()) {
      if (task.phase === "exited" || !task.plan.devices.includes(index)) continue;
      task.end(this.#gpuFault(index, fault));
    }
  }

  /**
   * Ends every task that needs this worker; each has up to `graceMs` to save its state. What has not
   * begun ends too.
   */
  async endAll(graceMs: number): Promise<void> {
    this.#closing = true;
    const live = [...this.#tasks.values()].filter(({ phase, plan }) => {
      const outlives = this.#executors.get(plan.spec.executor)?.outlivesWorker === true;
      return phase !== "exited" && !(outlives && (phase === "running" || phase === "stopping"));
    });
    const why = { reason: "NodeLost", message: "its worker was stopped" } as const;
    for (const task of live) task.end(why, Math.min(graceMs, task.plan.spec.graceMs));
    await Promise.all(live.map((task) => task.settled));
  }

  /** The last resort of a process that ends now: no task may outlive it. */
  killNow(): void {
    const live = [...this.#tasks.values()].filter(({ phase }) => phase !== "exited");
    if (live.length === 0) return;
    const scan = ProcessScan.now();
    for (const task of live) task.killNow(scan);
  }

  #gpuFault(index: number, fault: string): ExitVerdict {
    const message = `GPU ${index} of ${this.#node.name}: ${fault}`;
    return { reason: "GpuFault", message, sickDevices: [index] };
  }

  #refusal(plan: TaskPlan): ExitVerdict | undefined {
    const executors = this.#executors;
    const { name: nodeName } = this.#node;
    const faulty = this.#node
      .gpus()
      .find(({ index, fault }) => fault && plan.devices.includes(index));
    if (faulty) return this.#gpuFault(faulty.index, faulty.fault);
    if (this.#closing) return { reason: "NodeLost", message: "its worker is being stopped" };
    if (!executors.get(plan.spec.executor)) {
      const message = `the worker ${nodeName} has no executor "${plan.spec.executor}", but ${executors.names.join(", ")}`;
      return { reason: "LaunchFailed", message };
    }
    if (this.#tasks.size + this.#leasing.size >= maxTasks) {
      return { reason: "NodeLost", message: `the worker ${nodeName} holds ${maxTasks} tasks` };
    }
    return undefined;
  }

  /** Whether a later attempt of the job, or a replacement of the task, is known here. */
  #isFenced({ jobId, attempt, rank, incarnation }: TaskId__Output): boolean {
    const ids = [...this.#tasks.values()].map(({ plan }) => plan.id);
    const isOld = ids.some(
      (id) =>
        id.jobId === jobId &&
        (id.attempt > attempt ||
          (id.attempt === attempt && id.rank === rank && id.incarnation > incarnation)),
    );
    const isBuried = this.#tombstones.has(keyOf({ jobId, attempt, rank, incarnation }));
    if (isOld) this.fenced += 1;
    return isOld || isBuried;
  }

  #watchLease(): void {
    this.#lease.watchWhile(() => this.#tasks.size + this.#leasing.size > 0);
  }

  #fenceAll(why: string): void {
    for (const task of this.#tasks.values()) {
      if (task.phase === "exited") continue;
      this.#node.log.warn({ task: keyOf(task.plan.id), why }, "a task is killed");
      task.fence(why);
    }
  }

  /** An unusable record does not affect the worker's other tasks. */
  async #tryRestore(directory: TaskDirectory): Promise<void> {
    try {
      await this.#restore(directory);
    } catch (error) {
      const { message } = toAppError(error);
      this.#node.log.error(
        { directory: directory.path, error: message },
        "a task of an earlier process is lost",
      );
      for (const tasks of [this.#tasks, this.#retired]) {
        for (const [key, task] of tasks)
          if (task.directory.path === directory.path) tasks.delete(key);
      }
      await directory.remove(this.#onRemovalFault);
    }
  }

  async #restore(directory: TaskDirectory): Promise<void> {
    const { log } = this.#node;
    const { root } = this.#places;
    const memory = taskMemory(await directory.readRecord(), directory, root);
    // Its remaining processes carry its mark, and the sweep ends them.
    if (!memory || !this.#executors.get(memory.plan.spec.executor))
      return directory.remove(this.#onRemovalFault);
    const key = keyOf(memory.plan.id);
    const task = await this.#create(memory.plan, directory).catch((error: unknown) => {
      // A task may have put a link or a folder in place of its own log.
      log.error(
        { task: key, error: toAppError(error).message },
        "a task of an earlier attempt is abandoned",
      );
    });
    if (!task) return directory.remove(this.#onRemovalFault);
    if (memory.forgotten) this.#retired.set(key, task);
    else this.#tasks.set(key, task);
    this.#watchLease();
    await task.resume(memory, this.#lease.isLive);
    if (memory.phase !== "exited") {
      log.warn(
        { task: key, phase: task.phase, adopted: this.#lease.isLive },
        "found a task of an earlier process",
      );
    }
  }

  async #create(plan: TaskPlan, directory: TaskDirectory): Promise<Task> {
    const { checkpointRoot, maxLogBytes, copies } = this.#places;
    const executor = this.#executors.get(plan.spec.executor);
    if (!executor) throw new Error(`no executor ${plan.spec.executor}`);
    await directory.create();
    const streams = await TaskStreams.open(directory, maxLogBytes);
    const keep = Math.max(1, plan.spec.keepCheckpoints);
    const claim = () => this.checkpoints.claim(plan.id.jobId);
    const context: TaskContext = {
      node: this.#node,
      executor,
      launches: this.#launches,
      lease: this.#lease,
      checkpoints: new CheckpointLedger(checkpointRoot, plan.id, keep, { claim, copies }),
      files: { artifacts: this.#artifacts, inputs: this.#places.inputs, disk: this.disk },
      watchMs: () => Math.max(WATCH_MS, this.#tasks.size * WATCH_EACH_MS),
      onChange: (what) => {
        if (what === "phase") this.#onPhase(task);
        this.#changed(task, what);
      },
    };
    const task: Task = new Task(plan, directory, streams, context);
    return task;
  }

  #onPhase(task: Task): void {
    const { phase, exit } = task.status();
    const { exitCode, signal, reason, message } = exit ?? {};
    const end = exit ? { exitCode, signal, reason, error: message } : {};
    task.span.onPhase(task.status());
    this.#node.log.info({ task: keyOf(task.plan.id), phase, ...end, ...task.span.fields }, "task");
  }

  #bury(id: TaskId__Output, how: ExitVerdict | { reason: ""; message: string }): void {
    const exit = {
      signal: "",
      ...how,
      sickDevices: "sickDevices" in how ? [...(how.sickDevices ?? [])] : [],
      lastLines: [],
      endedUnixMs: Date.now(),
      asked: true,
    };
    const { cluster } = this.checkpoints;
    const status: TaskStatus = { task: id, phase: "exited", rendezvous: "", exit, cluster };
    this.#tombstones.set(keyOf(id), status);
    this.#changed(status, "phase");
  }

  async #remove(key: string): Promise<void> {
    const task = this.#retired.get(key);
    this.#retired.delete(key);
    await task?.remove();
  }

  #changed(task: Task | TaskStatus, what: TaskChange): void {
    for (const listener of this.#listeners) listener(task, what);
  }
}

import { Metadata, type ServerDuplexStream } from "@grpc/grpc-js";
import { OncePerTurn } from "@heddle/base/async/once-per-turn";
import { SerialQueue } from "@heddle/base/async/serial-queue";
import { AppError, toAppError } from "@heddle/base/errors";
import type { SessionHello__Output } from "@heddle/contracts/generated/heddle/v1/SessionHello";
import type { TaskCommand__Output } from "@heddle/contracts/generated/heddle/v1/TaskCommand";
import type { TaskReport } from "@heddle/contracts/generated/heddle/v1/TaskReport";
import type { TaskStatus } from "@heddle/contracts/generated/heddle/v1/TaskStatus";
import type { Log } from "@heddle/observability/logger";
import { toStatus } from "@heddle/rpc/status";
import { checkedId, keyOf, planOf } from "../records/task-plan.ts";
import type { LeaseKeeper } from "./leases/lease-keeper.ts";
import { Task } from "./task.ts";
import type { TaskTable } from "./task-table.ts";

export type TaskSessionStream = ServerDuplexStream<TaskCommand__Output, TaskReport>;

/** The interval of reports about jobs with checkpoints here, and their delay after a task's end. */
const FOLDERS_MS = 60_000;
const FOLDERS_SOON_MS = 500;
/**
 * A leader's refusal is reported after this time without a session: during an election it means
 * nothing.
 */
const REFUSAL_MS = 10_000;

/** WorkerTasks of proto/tasks.proto: only the session of the latest leader counts. */
export class TaskSessions {
  readonly #table: TaskTable;
  readonly #lease: LeaseKeeper;
  readonly #log: Log;
  #current: TaskSession | undefined;
  /** The latest refusal of a leader. */
  #refusal = "";
  #openAtMs = performance.now();

  constructor(table: TaskTable, lease: LeaseKeeper, log: Log) {
    this.#table = table;
    this.#lease = lease;
    this.#log = log;
  }

  serve(stream: TaskSessionStream): void {
    const session = new TaskSession(stream, this.#table, this.#lease, async (hello) => {
      await this.#begin(hello);
      const earlier = this.#current;
      this.#current = session;
      earlier?.end(new AppError("precondition_failed", "it was replaced by a later session"));
      this.#log.info({ master: hello.masterId, term: hello.term }, "a leader runs tasks here");
    });
  }

  async #begin({ cluster, term, leaseMs }: SessionHello__Output): Promise<void> {
    try {
      await this.#lease.begin(cluster, term, leaseMs);
      this.#refusal = "";
    } catch (error) {
      this.#refusal = toAppError(error).message;
      throw error;
    }
  }

  /** Why no leader is followed, where that has lasted; else empty. */
  get refusal(): string {
    if (this.isOpen) this.#openAtMs = performance.now();
    return performance.now() - this.#openAtMs > REFUSAL_MS ? this.#refusal : "";
  }

  /** Whether a leader is connected. */
  get isOpen(): boolean {
    return this.#current !== undefined && !this.#current.hasEnded;
  }

  close(): void {
    this.#current?.end(new AppError("unavailable", "the worker is being stopped"));
  }
}

/** One leader's stream: its commands in order, and the statuses of tasks as they change. */
class TaskSession {
  readonly #stream: TaskSessionStream;
  readonly #table: TaskTable;
  readonly #lease: LeaseKeeper;
  readonly #admit: (hello: SessionHello__Output) => Promise<void>;
  /** Tasks whose status has changed since it was last sent. */
  readonly #dirty = new Map<string, Task | TaskStatus>();
  readonly #commands = new SerialQueue();
  #unsubscribe: (() => void) | undefined;
  #renewing: NodeJS.Timeout | undefined;
  #folderTimer: NodeJS.Timeout | undefined;
  readonly #nextFlush = new OncePerTurn(() => this.#flush());
  #isOpen = false;
  #cluster = "";
  #ended = false;

  constructor(
    stream: TaskSessionStream,
    table: TaskTable,
    lease: LeaseKeeper,
    admit: (hello: SessionHello__Output) => Promise<void>,
  ) {
    this.#stream = stream;
    this.#table = table;
    this.#lease = lease;
    this.#admit = admit;
    stream.on("data", (command: TaskCommand__Output) => this.#receive(command));
    stream.on("drain", () => this.#flush());
    stream.once("end", () => {
      this.#stop();
      stream.end();
    });
    stream.once("cancelled", () => this.#stop());
    stream.once("error", () => this.#stop());
    stream.sendMetadata(new Metadata());
  }

  get hasEnded(): boolean {
    return this.#ended;
  }

  end(error: AppError): void {
    if (this.#ended) return;
    this.#stop();
    this.#stream.emit("error", toStatus(error));
  }

  /** Commands are executed one after the other; an error of one ends the session. */
  #receive(command: TaskCommand__Output): void {
    void this.#commands.run(async () => {
      if (this.#ended) return;
      try {
        await this.#obey(command);
      } catch (error) {
        this.end(error instanceof AppError ? error : new AppError("server_error", String(error)));
      }
    });
  }

  async #obey(command: TaskCommand__Output): Promise<void> {
    if (command.hello) return this.#open(command.hello);
    if (!this.#isOpen) throw new AppError("invalid_value", "the first command must be `hello`");
    const { lease, start, stop, forget, renew, checkpoint, forgetCheckpoints } = command;
    if (renew) {
      await this.#lease.renew(renew.request);
      this.#scheduleAsking();
    } else if (lease) await this.#table.lease(planOf(lease, this.#cluster));
    else if (start) this.#table.start(checkedId(start.task), start);
    else if (stop) this.#table.stop(checkedId(stop.task), stop);
    else if (forget) {
      await this.#table.forget(checkedId(forget.task), forget.dropArtifacts);
      this.#scheduleFolders(FOLDERS_SOON_MS);
    } else if (forgetCheckpoints) {
      const { jobIds, emptyJobIds, unknownJobIds } = forgetCheckpoints;
      this.#table.checkpoints.forget(jobIds, emptyJobIds, unknownJobIds);
    } else if (checkpoint) this.#table.checkpoint(checkedId(checkpoint.task));
  }

  async #open(hello: SessionHello__Output): Promise<void> {
    await this.#admit(hello);
    if (this.#ended || this.#isOpen) return;
    this.#isOpen = true;
    this.#cluster = hello.cluster;
    this.#table.checkpoints.cluster = hello.cluster;
    this.#stream.write({ inventory: { tasks: this.#table.statuses() } });
    this.#unsubscribe = this.#table.onChange((task, what) => {
      if (what !== "output") this.#markDirty(task);
    });
    this.#requestLease();
    this.#scheduleFolders(FOLDERS_SOON_MS);
  }

  #scheduleFolders(inMs: number): void {
    clearTimeout(this.#folderTimer);
    this.#folderTimer = setTimeout(() => void this.#reportFolders(), inMs);
    this.#folderTimer.unref();
  }

  async #reportFolders(): Promise<void> {
    const jobIds = await this.#table.checkpoints.next();
    if (this.#ended) return;
    if (jobIds.length > 0) this.#stream.write({ checkpointFolders: { jobIds } });
    this.#scheduleFolders(FOLDERS_MS);
  }

  #requestLease(): void {
    if (this.#ended) return;
    this.#stream.write({ leaseRequest: { request: this.#lease.ask() } });
    this.#scheduleAsking();
  }

  #scheduleAsking(): void {
    clearTimeout(this.#renewing);
    this.#renewing = setTimeout(() => this.#requestLease(), this.#lease.renewEveryMs);
    this.#renewing.unref();
  }

  #markDirty(task: Task | TaskStatus): void {
    this.#dirty.set(taskKeyOf(task), task);
    this.#nextFlush.request();
  }

  #flush(): void {
    if (this.#ended) return;
    // The check ends the tasks of an expired lease before they are reported.
    void this.#lease.isLive;
    for (const [key, task] of this.#dirty) {
      if (this.#stream.writableNeedDrain) return;
      this.#dirty.delete(key);
      const status = task instanceof Task ? task.status() : task;
      this.#stream.write({ status });
    }
  }

  #stop(): void {
    this.#ended = true;
    clearTimeout(this.#renewing);
    clearTimeout(this.#folderTimer);
    this.#unsubscribe?.();
    this.#dirty.clear();
  }
}

function taskKeyOf(task: Task | TaskStatus): string {
  const id = task instanceof Task ? task.plan.id : task.task;
  const { jobId = "", attempt = 0, rank = 0, incarnation = 0 } = id ?? {};
  return keyOf({ jobId, attempt, rank, incarnation });
}

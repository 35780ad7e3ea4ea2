import type { ClientDuplexStream } from "@grpc/grpc-js";
import { keepConnected } from "@heddle/base/async/keep-connected";
import type { AppError } from "@heddle/base/errors";
import type { ForgetCheckpoints } from "@heddle/contracts/generated/heddle/v1/ForgetCheckpoints";
import type { TaskCommand } from "@heddle/contracts/generated/heddle/v1/TaskCommand";
import type { TaskReport__Output } from "@heddle/contracts/generated/heddle/v1/TaskReport";
import type { TaskStatus__Output } from "@heddle/contracts/generated/heddle/v1/TaskStatus";
import { type TaskRecord, taskKey } from "@heddle/control/jobs/records/records";
import type { Log } from "@heddle/observability/logger";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import { Peer } from "@heddle/rpc/peer";
import { taskSessionMethod } from "@heddle/rpc/proto";
import { fromStatus } from "@heddle/rpc/status";

const reconnect = { baseMs: 50, maxMs: 2_000 };
/** An order without an effect is repeated after this. */
const REPEAT_MS = 3_000;
/** Maximum orders in flight to one worker; the others wait for a later round. */
const MAX_UNANSWERED = 1_024;
/** Lease intervals without a message after which a stream is reopened; a worker renews sooner. */
const SILENT_FACTOR = 2;

/** A worker, and where it serves sessions. */
export interface LinkedWorker {
  readonly node: string;
  readonly address: string;
}

/** In whose name a session gives orders. */
export interface LeaderTerm {
  readonly masterId: string;
  readonly term: number;
  /** The cluster's id; empty for a master without a group. */
  readonly cluster: string;
  readonly leaseMs: number;
}

/** The leader's answers to what a worker reports. */
export interface LinkOwner {
  /** Whether this master may extend the worker's leases now. */
  mayRenew(worker: LinkedWorker, term: LeaderTerm): boolean;
  /** Called on the inventory, which may change any task, and on a new status with its key. */
  onReport(worker: LinkedWorker, key?: string): void;
  onProgress(worker: LinkedWorker, status: TaskStatus__Output): void;
  /** The jobs among these whose checkpoints have expired; undefined for none. */
  expiredCheckpoints(jobIds: readonly string[]): ForgetCheckpoints | undefined;
}

/** The leader's session with one worker: its task statuses, and orders to it. */
export class TaskLink {
  /** Keyed by `job/attempt/rank`: the worker's latest status. */
  readonly statuses = new Map<string, TaskStatus__Output>();
  readonly worker: LinkedWorker;
  readonly leader: LeaderTerm;
  readonly #owner: LinkOwner;
  readonly #log: Log;
  readonly #peer: Peer;
  readonly #closing = new AbortController();
  /** The latest order for each task, and its time. */
  readonly #given = new Map<string, { readonly order: string; readonly atMs: number }>();
  #stream: ClientDuplexStream<TaskCommand, TaskReport__Output> | undefined;
  #hasInventory = false;

  constructor(
    worker: LinkedWorker,
    leader: LeaderTerm,
    owner: LinkOwner,
    credentials: NodeCredentials,
    log: Log,
  ) {
    this.worker = worker;
    this.leader = leader;
    this.#owner = owner;
    this.#log = log;
    this.#peer = new Peer(worker.address, credentials, "worker");
    void this.#run();
  }

  get node(): string {
    return this.worker.node;
  }

  /** Whether the worker has sent all its statuses. */
  get isReady(): boolean {
    return this.#stream !== undefined && this.#hasInventory;
  }

  /**
   * Sends the order, unless it was sent recently and may still take effect. False: the worker takes
   * no more orders now.
   */
  order(key: string, command: TaskCommand, nowMs: number): boolean {
    const kind = Object.keys(command)[0] ?? "";
    const given = this.#given.get(key);
    if (given?.order === kind && nowMs - given.atMs < REPEAT_MS) return true;
    if (!given && this.#given.size >= MAX_UNANSWERED) return false;
    if (this.#stream?.writableNeedDrain) return false;
    this.#given.set(key, { order: kind, atMs: nowMs });
    this.#stream?.write(command);
    return true;
  }

  /** The task has its desired state. */
  settle(key: string): void {
    this.#given.delete(key);
  }

  /** The worker was ordered to forget it. */
  forget(key: string): void {
    this.statuses.delete(key);
    this.#given.delete(key);
  }

  close(): void {
    this.#closing.abort();
    this.#stream?.cancel();
    this.#peer.close();
  }

  #run(): Promise<void> {
    return keepConnected({
      backoff: reconnect,
      signal: this.#closing.signal,
      connect: (onOpen) => this.#session(onOpen),
      onEnd: ({ message: error }) => {
        this.#log.info({ node: this.node, error }, "the session for tasks ended, opening another");
      },
    });
  }

  #session(onOpen: () => void): Promise<AppError> {
    const stream = this.#peer.duplex(taskSessionMethod);
    const { leaseMs } = this.leader;
    const { promise, resolve } = Promise.withResolvers<AppError>();
    let silence: NodeJS.Timeout | undefined;
    const onMessage = () => {
      clearTimeout(silence);
      silence = setTimeout(() => stream.cancel(), leaseMs * SILENT_FACTOR);
      silence.unref();
    };
    const end = (error: unknown) => {
      clearTimeout(silence);
      this.#stream = undefined;
      this.#hasInventory = false;
      this.#given.clear();
      resolve(fromStatus(error, this.worker.address));
    };
    stream.on("error", end);
    stream.on("end", () => {
      stream.end();
      end(new Error("the worker closed the stream"));
    });
    stream.on("data", (report: TaskReport__Output) => {
      onMessage();
      this.#receive(stream, report, onOpen);
    });
    onMessage();
    stream.write({ hello: this.leader });
    return promise;
  }

  #receive(
    stream: ClientDuplexStream<TaskCommand, TaskReport__Output>,
    { inventory, status, leaseRequest, checkpointFolders }: TaskReport__Output,
    onOpen: () => void,
  ): void {
    if (leaseRequest && this.#owner.mayRenew(this.worker, this.leader)) {
      stream.write({ renew: { request: leaseRequest.request } });
    }
    if (inventory) {
      this.#stream = stream;
      this.#hasInventory = true;
      this.statuses.clear();
      for (const each of inventory.tasks) {
        if (each.task) this.#take(each, each.task);
      }
      onOpen();
      this.#owner.onReport(this.worker);
    }
    if (checkpointFolders && this.#owner.mayRenew(this.worker, this.leader)) {
      const forgetCheckpoints = this.#owner.expiredCheckpoints(checkpointFolders.jobIds);
      if (forgetCheckpoints) stream.write({ forgetCheckpoints });
    }
    if (!status?.task) return;
    this.#owner.onReport(this.worker, this.#take(status, status.task));
  }

  /** Returns the status' key. */
  #take(status: TaskStatus__Output, task: TaskName): string {
    const key = statusKey(task);
    const before = this.statuses.get(key);
    this.statuses.set(key, status);
    if (before?.phase !== status.phase) this.#given.delete(key);
    if (status.progress) this.#owner.onProgress(this.worker, status);
    return key;
  }
}

/** The key of a task among a worker's statuses; a replacement has its own. */
export function statusKey({ jobId, attempt, rank, incarnation }: TaskName): string {
  return `${taskKey(jobId, attempt, rank)}/${incarnation ?? 0}`;
}

/** The key of the record to which a status' key belongs. */
export function recordKeyOf(key: string): string {
  return key.slice(0, key.lastIndexOf("/"));
}

type TaskName = Pick<TaskRecord, "jobId" | "attempt" | "rank" | "incarnation">;

import { setTimeout as delay } from "node:timers/promises";
import type { ClientDuplexStream } from "@grpc/grpc-js";
import { Backoff } from "@heddle/base/backoff";
import type { AppError } from "@heddle/base/errors";
import type { ForgetCheckpoints } from "@heddle/contracts/generated/heddle/v1/ForgetCheckpoints";
import type { TaskCommand } from "@heddle/contracts/generated/heddle/v1/TaskCommand";
import type { TaskReport__Output } from "@heddle/contracts/generated/heddle/v1/TaskReport";
import type { TaskStatus__Output } from "@heddle/contracts/generated/heddle/v1/TaskStatus";
import { type TaskRecord, taskKey } from "@heddle/control/jobs/records/records";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import type { NodeLog } from "@heddle/rpc/node/log";
import { Peer } from "@heddle/rpc/peer";
import { taskSessionMethod } from "@heddle/rpc/proto";
import { fromStatus } from "@heddle/rpc/status";

const reconnect = { baseMs: 50, maxMs: 2_000 };
/** An order that has shown no effect is given again after this. */
const repeatMs = 3_000;
/** Orders that may be under way to one worker; the rest waits for a later round. */
const maxUnanswered = 1_024;
/** A stream over which nothing came for so long is opened anew; a worker asks for its lease sooner. */
const silentFactor = 2;

export interface TaskLinkOptions {
  readonly node: string;
  readonly address: string;
  readonly credentials: NodeCredentials;
  readonly masterId: string;
  readonly term: number;
  /** The cluster's own id; empty for a master without a group. */
  readonly cluster: string;
  readonly leaseMs: number;
  readonly log: NodeLog;
  /** Whether this master may extend the leases of this worker now. */
  mayRenew(): boolean;
  /** Something that the worker says is new. */
  onReport(): void;
  onProgress(status: TaskStatus__Output): void;
  /** Of the jobs named, those whose checkpoints may be needed no more; undefined for none. */
  checkpointsOver(jobIds: readonly string[]): ForgetCheckpoints | undefined;
}

/** The leader's session with one worker: what it says of its tasks, and orders to it. */
export class TaskLink {
  /** By `job/attempt/rank`: the worker's latest word. */
  readonly statuses = new Map<string, TaskStatus__Output>();
  readonly #options: TaskLinkOptions;
  readonly #peer: Peer;
  readonly #closing = new AbortController();
  /** The latest order for each task, and when it was given. */
  readonly #given = new Map<string, { readonly order: string; readonly atMs: number }>();
  #stream: ClientDuplexStream<TaskCommand, TaskReport__Output> | undefined;
  #hasInventory = false;

  constructor(options: TaskLinkOptions) {
    this.#options = options;
    this.#peer = new Peer(options.address, options.credentials, "worker");
    void this.#run();
  }

  get node(): string {
    return this.#options.node;
  }

  get cluster(): string {
    return this.#options.cluster;
  }

  get address(): string {
    return this.#options.address;
  }

  get term(): number {
    return this.#options.term;
  }

  /** Whether all that the worker has is known. */
  get isReady(): boolean {
    return this.#stream !== undefined && this.#hasInventory;
  }

  /** Gives the order, unless it was given lately and may still show its effect. */
  order(key: string, command: TaskCommand, nowMs: number): void {
    const kind = Object.keys(command)[0] ?? "";
    const given = this.#given.get(key);
    if (given?.order === kind && nowMs - given.atMs < repeatMs) return;
    if (!given && this.#given.size >= maxUnanswered) return;
    if (this.#stream?.writableNeedDrain) return;
    this.#given.set(key, { order: kind, atMs: nowMs });
    this.#stream?.write(command);
  }

  /** Nothing is wanted of the task but what it does. */
  settle(key: string): void {
    this.#given.delete(key);
  }

  /** The worker was told to forget it. */
  forget(key: string): void {
    this.statuses.delete(key);
    this.#given.delete(key);
  }

  close(): void {
    this.#closing.abort();
    this.#stream?.cancel();
    this.#peer.close();
  }

  async #run(): Promise<void> {
    const backoff = new Backoff(reconnect);
    const { signal } = this.#closing;
    const { node, log } = this.#options;
    while (!signal.aborted) {
      const error = await this.#session(() => backoff.reset());
      if (signal.aborted) return;
      log.info({ node, error: error.message }, "the session for tasks ended, opening it anew");
      await delay(backoff.nextMs(), undefined, { signal }).catch(() => {});
    }
  }

  #session(onOpen: () => void): Promise<AppError> {
    const stream = this.#peer.duplex(taskSessionMethod);
    const { address, term, cluster, masterId, leaseMs } = this.#options;
    const { promise, resolve } = Promise.withResolvers<AppError>();
    let silence: NodeJS.Timeout | undefined;
    const heard = () => {
      clearTimeout(silence);
      silence = setTimeout(() => stream.cancel(), leaseMs * silentFactor);
      silence.unref();
    };
    const end = (error: unknown) => {
      clearTimeout(silence);
      this.#stream = undefined;
      this.#hasInventory = false;
      this.#given.clear();
      resolve(fromStatus(error, address));
    };
    stream.on("error", end);
    stream.on("end", () => {
      stream.end();
      end(new Error("the worker closed the stream"));
    });
    stream.on("data", (report: TaskReport__Output) => {
      heard();
      this.#receive(stream, report, onOpen);
    });
    heard();
    stream.write({ hello: { term, masterId, leaseMs, cluster } });
    return promise;
  }

  #receive(
    stream: ClientDuplexStream<TaskCommand, TaskReport__Output>,
    { inventory, status, leaseRequest, checkpointFolders }: TaskReport__Output,
    onOpen: () => void,
  ): void {
    if (leaseRequest && this.#options.mayRenew()) {
      stream.write({ renew: { request: leaseRequest.request } });
    }
    if (inventory) {
      this.#stream = stream;
      this.#hasInventory = true;
      this.statuses.clear();
      for (const each of inventory.tasks) this.#take(each);
      onOpen();
      this.#options.onReport();
    }
    if (checkpointFolders && this.#options.mayRenew()) {
      const forgetCheckpoints = this.#options.checkpointsOver(checkpointFolders.jobIds);
      if (forgetCheckpoints) stream.write({ forgetCheckpoints });
    }
    if (!status) return;
    this.#take(status);
    this.#options.onReport();
  }

  #take(status: TaskStatus__Output): void {
    if (!status.task) return;
    const key = statusKey(status.task);
    const before = this.statuses.get(key);
    this.statuses.set(key, status);
    if (before?.phase !== status.phase) this.#given.delete(key);
    if (status.progress) this.#options.onProgress(status);
  }
}

/** The key of a task among a worker's statuses: the task that another has replaced is none with it. */
export function statusKey({ jobId, attempt, rank, incarnation }: TaskName): string {
  return `${taskKey(jobId, attempt, rank)}/${incarnation ?? 0}`;
}

type TaskName = Pick<TaskRecord, "jobId" | "attempt" | "rank" | "incarnation">;

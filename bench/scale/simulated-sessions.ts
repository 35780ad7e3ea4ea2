import { Metadata, type ServerDuplexStream } from "@grpc/grpc-js";
import type { SessionHello__Output } from "@heddle/contracts/generated/heddle/v1/SessionHello";
import type { TaskCommand__Output } from "@heddle/contracts/generated/heddle/v1/TaskCommand";
import type { TaskId__Output } from "@heddle/contracts/generated/heddle/v1/TaskId";
import type { TaskReport } from "@heddle/contracts/generated/heddle/v1/TaskReport";
import { keyOf } from "../../apps/worker/dist/records/task-plan.js";
import { bootClock, Lease } from "../../apps/worker/dist/tasks/leases/lease.js";
import type { TaskTimes } from "./settings.ts";
import { now, SimulatedTask } from "./simulated-task.ts";

export type SessionStream = ServerDuplexStream<TaskCommand__Output, TaskReport>;

/**
 * The worker's end of WorkerTasks.Session, with the lease of real workers: only the session of the
 * latest leader counts.
 */
export class SimulatedSessions {
  readonly #lease = new Lease(bootClock);
  readonly #tasks = new Map<string, SimulatedTask>();
  readonly #onLogs: () => void;
  #current: SessionStream | undefined;
  #hello: SessionHello__Output | undefined;
  #grantedMs: number | undefined;
  #renewing: NodeJS.Timeout | undefined;
  readonly #finished: TaskTimes[] = [];
  readonly #forgotten = new Map<string, SimulatedTask>();

  /** `onLogs` is called when a log has more to ship. */
  constructor(onLogs: () => void) {
    this.#onLogs = onLogs;
  }

  /** The term of the open session, and when its leader first granted the lease. */
  get session(): { readonly term: number; readonly grantedMs: number } | undefined {
    if (!this.#current || this.#grantedMs === undefined) return undefined;
    return { term: this.#hello?.term ?? 0, grantedMs: this.#grantedMs };
  }

  /** All tasks whose logs are to be shipped. */
  logged(): SimulatedTask[] {
    return [...this.#tasks.values(), ...this.#forgotten.values()];
  }

  /** Every master has the task's log. */
  onShipped(id: TaskId__Output): void {
    this.#forgotten.delete(keyOf(id));
  }

  /** The tasks that have ended since the last call. */
  takeFinished(): TaskTimes[] {
    return this.#finished.splice(0);
  }

  serve(stream: SessionStream): void {
    const leave = () => {
      if (this.#current !== stream) return;
      this.#current = undefined;
      clearTimeout(this.#renewing);
    };
    stream.on("data", (command: TaskCommand__Output) => this.#obey(stream, command));
    stream.once("end", () => {
      leave();
      stream.end();
    });
    stream.once("cancelled", leave);
    stream.once("error", leave);
    stream.sendMetadata(new Metadata());
  }

  close(): void {
    clearTimeout(this.#renewing);
    for (const task of this.#tasks.values()) task.drop();
  }

  #obey(stream: SessionStream, command: TaskCommand__Output): void {
    const { hello, lease, start, stop, forget, renew } = command;
    if (hello) this.#begin(stream, hello);
    if (stream !== this.#current) return;
    if (renew) {
      this.#lease.renew(renew.request);
      this.#grantedMs ??= now();
      this.#scheduleAsking();
    } else if (lease?.task && !this.#tasks.has(keyOf(lease.task))) {
      const key = keyOf(lease.task);
      const task = new SimulatedTask(lease, this.#hello?.cluster ?? "", () => this.#report(task));
      this.#tasks.set(key, task);
      this.#report(task);
    } else if (start?.task) this.#tasks.get(keyOf(start.task))?.start();
    else if (stop?.task) this.#tasks.get(keyOf(stop.task))?.stop();
    else if (forget?.task) this.#forget(keyOf(forget.task));
  }

  #begin(stream: SessionStream, hello: SessionHello__Output): void {
    if (this.#hello && hello.term < this.#hello.term) {
      stream.end();
      return;
    }
    this.#current = stream;
    this.#hello = hello;
    this.#grantedMs = undefined;
    this.#lease.begin(hello.leaseMs);
    stream.write({ inventory: { tasks: [...this.#tasks.values()].map((task) => task.status()) } });
    this.#requestLease();
  }

  #requestLease(): void {
    this.#current?.write({ leaseRequest: { request: this.#lease.ask() } });
    this.#scheduleAsking();
  }

  #scheduleAsking(): void {
    clearTimeout(this.#renewing);
    this.#renewing = setTimeout(() => this.#requestLease(), this.#lease.renewEveryMs);
  }

  #report(task: SimulatedTask): void {
    this.#current?.write({ status: task.status() });
    if (task.isEnded && task.times) this.#finished.push(task.times);
    if (task.times) this.#onLogs();
  }

  #forget(key: string): void {
    const task = this.#tasks.get(key);
    this.#tasks.delete(key);
    if (task?.times) this.#forgotten.set(key, task);
  }
}

import type { ClientDuplexStream } from "@grpc/grpc-js";
import { abortableDelay } from "@heddle/base/async/abortable-delay";
import { keepConnected } from "@heddle/base/async/keep-connected";
import { resolvesWithin } from "@heddle/base/async/resolves-within";
import type { AppError } from "@heddle/base/errors";
import type { LogAck__Output } from "@heddle/contracts/generated/heddle/v1/LogAck";
import type { LogChunk } from "@heddle/contracts/generated/heddle/v1/LogChunk";
import type { TaskId__Output } from "@heddle/contracts/generated/heddle/v1/TaskId";
import type { Log } from "@heddle/observability/logger";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import { Peer } from "@heddle/rpc/peer";
import { shipLogsMethod } from "@heddle/rpc/proto";
import { fromStatus } from "@heddle/rpc/status";
import type { TaskLog } from "@heddle/storage/task-log";
import { keyOf } from "../records/task-plan.ts";

const CHUNK_BYTES = 64 * 1024;
/** The most unacknowledged bytes of one master. */
const WINDOW_BYTES = 1024 * 1024;
/** A log that is not longer is sent from its beginning, whatever the master has of it. */
const UNASKED_BYTES = 4 * 1024;
/** The longest time between two checks of the files. */
const IDLE_MS = 500;
/** A session without any log for this long is closed: an idle worker holds no stream. */
const UNUSED_MS = 10_000;
const reconnect = { baseMs: 100, maxMs: 3_000 };

/** What shipping needs of a log. */
export type ReadableLog = Pick<TaskLog, "end" | "complete" | "read">;

/** One stream of one task. */
export interface ShippedLog {
  readonly id: TaskId__Output;
  /** The grant of the task's lease. */
  readonly grant: string;
  readonly stream: string;
  readonly log: ReadableLog;
}

/** A master to which logs are shipped. */
export interface LogTarget {
  /** host:port of the master. */
  readonly master: string;
  readonly credentials: NodeCredentials;
  /** This node. */
  readonly nodeId: string;
  /** Resolves when the master may be contacted: not while it is removed from its group. */
  whileRemoved(signal: AbortSignal): Promise<void>;
  readonly log: Log;
}

/** The logs to ship, and what is known of them at each master. */
export interface LogBook {
  /** All logs to ship; for a fenced task, what it wrote under its lease. */
  logs(): readonly ShippedLog[];
  /** The master has the stream up to there on disk, or refuses the rest. */
  onDurable(master: string, id: TaskId__Output, stream: string, end: number): void;
  /** The master has the whole of a finished log on disk. */
  onShipped(master: string, shipped: ShippedLog): void;
}

/** The progress of one log at one master. */
interface Progress {
  /** Undefined until the master has reported its end, for which it was `asked`. */
  sent: number | undefined;
  asked: boolean;
  acked: number;
  sentComplete: boolean;
  done: boolean;
}

/**
 * Ships the logs of this worker's tasks to one master, connected while there are any. It asks for
 * the master's end of each long log, and sends the rest no faster than the master makes it durable.
 */
export class LogShipper {
  readonly #target: LogTarget;
  readonly #book: LogBook;
  readonly #closing = new AbortController();
  readonly #done: Promise<void>;
  #wake: (() => void) | undefined;
  /** The master refused a stream: one of an older version knows no metrics. */
  #isOlder = false;

  constructor(target: LogTarget, book: LogBook) {
    this.#target = target;
    this.#book = book;
    this.#done = this.#run();
  }

  /** There is more to ship. */
  wake(): void {
    this.#wake?.();
  }

  close(): Promise<void> {
    this.#closing.abort();
    this.wake();
    return this.#done;
  }

  #run(): Promise<void> {
    return keepConnected({
      backoff: reconnect,
      signal: this.#closing.signal,
      connect: (onOpen) => this.#shipOnce(onOpen),
      beforeNext: (next) => this.#target.whileRemoved(next),
    });
  }

  async #untilLogs(): Promise<void> {
    const { signal } = this.#closing;
    while (this.#book.logs().length === 0 && !signal.aborted) {
      const woken = Promise.withResolvers<void>();
      this.#wake = woken.resolve;
      await Promise.race([woken.promise, abortableDelay(IDLE_MS, signal)]);
    }
  }

  async #shipOnce(onOpen: () => void): Promise<void> {
    const { signal } = this.#closing;
    await this.#untilLogs();
    if (signal.aborted) return;
    const { master, credentials } = this.#target;
    const peer = new Peer(master, credentials);
    const book = this.#isOlder ? withoutMetrics(this.#book) : this.#book;
    const session = new ShipSession(this.#target, book, peer.duplex(shipLogsMethod));
    this.#wake = () => session.wake();
    const cancel = () => session.cancel();
    signal.addEventListener("abort", cancel, { once: true });
    const { code } = await session.run(onOpen);
    this.#isOlder = code === "invalid_value";
    // A master may be unreachable for days: no retry may leave anything in memory.
    signal.removeEventListener("abort", cancel);
    this.#wake = undefined;
    peer.close();
  }
}

/** One stream to the master, from its opening to its end. */
class ShipSession {
  readonly #target: LogTarget;
  readonly #book: LogBook;
  readonly #stream: ClientDuplexStream<LogChunk, LogAck__Output>;
  readonly #progress = new Map<string, Progress>();
  readonly #ended: Promise<AppError>;
  #isEnded = false;
  #usedAtMs = performance.now();
  #onAck: (() => void) | undefined;
  #signalled = Promise.withResolvers<void>();

  constructor(
    target: LogTarget,
    book: LogBook,
    stream: ClientDuplexStream<LogChunk, LogAck__Output>,
  ) {
    this.#target = target;
    this.#book = book;
    this.#stream = stream;
    const { promise, resolve } = Promise.withResolvers<AppError>();
    this.#ended = promise;
    const end = (error: unknown) => {
      this.#isEnded = true;
      resolve(fromStatus(error, target.master));
      this.wake();
    };
    stream.on("error", end);
    stream.on("end", () => end(new Error("the master closed the stream")));
    stream.on("drain", () => this.wake());
    stream.on("data", (ack: LogAck__Output) => this.#receive(ack));
  }

  wake(): void {
    this.#signalled.resolve();
  }

  cancel(): void {
    this.#stream.cancel();
  }

  /** Resolves with why the stream has ended; `onAck` is called at each message of the master. */
  async run(onAck: () => void): Promise<AppError> {
    this.#onAck = onAck;
    while (!this.#isEnded) {
      this.#signalled = Promise.withResolvers<void>();
      const sent = await this.#round().catch((error: unknown) => {
        this.#target.log.warn({ error: String(error) }, "a log could not be read for shipping");
        return false;
      });
      if (sent) continue;
      if (performance.now() - this.#usedAtMs > UNUSED_MS) this.#stream.end();
      await resolvesWithin(this.#signalled.promise, IDLE_MS);
    }
    return this.#ended;
  }

  /** Sends one piece of each log that has more; returns whether any was sent. */
  async #round(): Promise<boolean> {
    let sent = false;
    const logs = this.#book.logs();
    if (logs.length > 0) this.#usedAtMs = performance.now();
    this.#forgetOthers(logs);
    for (const shipped of logs) {
      if (this.#isEnded || this.#stream.writableNeedDrain) return false;
      if (await this.#send(shipped)) sent = true;
    }
    return sent;
  }

  async #send(shipped: ShippedLog): Promise<boolean> {
    const { id, grant, stream, log } = shipped;
    const owned = { file: { task: id, stream }, nodeId: this.#target.nodeId, grant };
    const known = this.#progress.get(fileKey(shipped)) ?? this.#begin(shipped);
    if (known.sent === undefined && !known.asked) {
      this.#stream.write({ ...owned, offset: 0, first: 0 });
      known.asked = true;
      return true;
    }
    if (known.sent === undefined || known.done || known.sentComplete) return false;
    if (known.sent >= log.end && !log.complete) return false;
    if (known.sent - known.acked >= WINDOW_BYTES / 4 || this.#inFlight() >= WINDOW_BYTES)
      return false;
    const from = known.sent;
    const { offset, data, times, complete } = await log.read(from, CHUNK_BYTES);
    // The file has shrunk: the next check finds out why.
    if (data.byteLength === 0 && offset === from && !complete) return false;
    // The bytes between the last acknowledged one and `first` were released meanwhile, and are
    // lost.
    const first = offset > from ? offset : 0;
    this.#stream.write({ ...owned, offset, data, times: [...times], complete, first });
    known.sent = offset + data.byteLength;
    known.sentComplete = complete;
    return true;
  }

  /** What the master has of a short log is sent again, which costs less than to ask for it. */
  #begin(shipped: ShippedLog): Progress {
    const sent = shipped.log.end > UNASKED_BYTES ? undefined : 0;
    const progress = { sent, asked: false, acked: 0, sentComplete: false, done: false };
    this.#progress.set(fileKey(shipped), progress);
    return progress;
  }

  #receive(ack: LogAck__Output): void {
    this.#onAck?.();
    const task = ack.file?.task;
    if (!ack.file || !task) return;
    const key = `${keyOf(task)}/${ack.file.stream}`;
    const known = this.#progress.get(key);
    if (known) this.#apply(known, ack, key);
    const end = ack.fenced ? Number.POSITIVE_INFINITY : (known?.acked ?? 0);
    this.#book.onDurable(this.#target.master, task, ack.file.stream, end);
    this.wake();
  }

  #apply(known: Progress, ack: LogAck__Output, key: string): void {
    known.sent ??= ack.durable;
    known.acked = Math.max(known.acked, ack.durable);
    if (!ack.fenced && !ack.complete) return;
    known.done = true;
    const shipped = this.#book.logs().find((each) => fileKey(each) === key);
    if (shipped) this.#book.onShipped(this.#target.master, shipped);
  }

  #inFlight(): number {
    let bytes = 0;
    for (const { sent, acked } of this.#progress.values())
      bytes += Math.max(0, (sent ?? 0) - acked);
    return bytes;
  }

  #forgetOthers(logs: readonly ShippedLog[]): void {
    if (this.#progress.size <= logs.length) return;
    const keys = new Set(logs.map(fileKey));
    for (const key of this.#progress.keys()) if (!keys.has(key)) this.#progress.delete(key);
  }
}

function withoutMetrics(book: LogBook): LogBook {
  return {
    logs: () => book.logs().filter(({ stream }) => stream !== "metrics"),
    onDurable: (...known) => book.onDurable(...known),
    onShipped: (...known) => book.onShipped(...known),
  };
}

function fileKey({ id, stream }: ShippedLog): string {
  return `${keyOf(id)}/${stream}`;
}

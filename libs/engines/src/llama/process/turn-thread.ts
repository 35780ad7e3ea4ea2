import { Worker, type WorkerOptions } from "node:worker_threads";
import { AppError } from "@heddle/base/errors";
import type { EngineFailure } from "@heddle/contracts/engine";
import { SequenceQueue } from "../engine-thread/sequence-queue.ts";

/** What such a thread answers to each message, in the order of their arrival. */
export type TurnResult<Output> = { readonly value: Output } | { readonly failure: EngineFailure };

/** How the thread is started, and what one item may take of it. */
interface TurnThreadOptions {
  readonly url: URL;
  readonly worker: WorkerOptions;
  readonly limit?: TurnLimit | undefined;
}

/** An item that takes more ends the thread and fails; without a limit none may. */
interface TurnLimit {
  /**
   * Processor time, so that a loaded machine fails no item. The memory is the thread's own limit.
   */
  readonly cpuMs: number;
  readonly failure: () => AppError;
}

/** The least time between two checks of what an item has taken. */
const POLL_MS = 50;

/** The key of the item's owner. */
export interface TurnOwner {
  readonly fairKey: string;
  readonly priority: number;
}

/** An item that waits or is being worked on. */
interface Turn<Input, Output> extends TurnOwner {
  readonly input: Input;
  /** The cost charged to its key; if absent, the milliseconds that it took. */
  readonly cost: number | undefined;
  readonly resolve: (output: Output) => void;
  readonly reject: (error: AppError) => void;
}

/** An item on its way. */
interface Turning<Output> {
  readonly result: Promise<Output>;
  /** Gives the item up; one that was not begun never is. */
  readonly cancel: () => void;
}

/**
 * Has a thread of its own work on one item at a time; it begins with the first. Keys take turns by
 * what their items cost: one that sends much delays its own.
 */
export class TurnThread<Input, Output> {
  readonly #options: TurnThreadOptions;
  readonly #onFatal: (error: unknown) => void;
  readonly #queue = new SequenceQueue<Turn<Input, Output>>();
  #thread: Worker | undefined;
  #current: Turn<Input, Output> | undefined;
  #begunMs = 0;
  #timer: NodeJS.Timeout | undefined;

  /** Calls `onFatal` when the thread fails, which is a bug. */
  constructor(options: TurnThreadOptions, onFatal: (error: unknown) => void) {
    this.#options = options;
    this.#onFatal = onFatal;
  }

  run(input: Input, { fairKey, priority }: TurnOwner, cost?: number): Turning<Output> {
    const { promise, resolve, reject } = Promise.withResolvers<Output>();
    const turn = { input, fairKey, priority, cost, resolve, reject };
    this.#queue.push(turn);
    this.#next();
    return { result: promise, cancel: () => this.#cancel(turn) };
  }

  /** Ends the thread; what waits is never worked on. */
  async close(): Promise<void> {
    clearTimeout(this.#timer);
    await this.#thread?.terminate();
  }

  #next(): void {
    if (this.#current !== undefined) return;
    const [first] = this.#queue.ordered(() => 0);
    if (first === undefined) return;
    this.#queue.remove(first);
    this.#current = first;
    this.#begunMs = performance.now();
    this.#thread ??= this.#begin();
    const { limit } = this.#options;
    if (limit) this.#watch(first, cpuMsOf(this.#thread), limit, limit.cpuMs);
    this.#thread.postMessage(first.input);
  }

  #watch(
    turn: Turn<Input, Output>,
    begun: Promise<number>,
    limit: TurnLimit,
    leftMs: number,
  ): void {
    this.#timer = setTimeout(
      async () => {
        const used = this.#thread && cpuMsOf(this.#thread);
        const usedMs = ((await used) ?? 0) - (await begun);
        if (this.#current !== turn) return;
        if (usedMs >= limit.cpuMs) this.#abandon(limit.failure());
        else this.#watch(turn, begun, limit, limit.cpuMs - usedMs);
      },
      Math.max(POLL_MS, leftMs),
    );
  }

  #begin(): Worker {
    const { url, worker, limit } = this.#options;
    const thread = new Worker(url, worker);
    thread.on("message", (result: TurnResult<Output>) => this.#take(result));
    thread.on("error", (error: NodeJS.ErrnoException) => {
      if (limit && error.code === "ERR_WORKER_OUT_OF_MEMORY") this.#abandon(limit.failure());
      else this.#onFatal(error);
    });
    return thread;
  }

  /** The next item gets a new thread. */
  #abandon(failure: AppError): void {
    this.#thread?.removeAllListeners();
    // An error of a thread that is being ended would end the process without a listener.
    this.#thread?.on("error", () => undefined);
    void this.#thread?.terminate();
    this.#thread = undefined;
    const { code, message, param } = failure;
    this.#take({ failure: { code, message, param } });
  }

  #take(result: TurnResult<Output>): void {
    const turn = this.#current;
    if (turn === undefined) throw new Error("a thread answered without a request");
    clearTimeout(this.#timer);
    this.#current = undefined;
    this.#queue.charge(turn.fairKey, turn.cost ?? performance.now() - this.#begunMs);
    this.#queue.leave(turn.fairKey);
    if ("value" in result) turn.resolve(result.value);
    else {
      const { code, message, param } = result.failure;
      turn.reject(new AppError(code, message, { param }));
    }
    this.#next();
  }

  /** What is being worked on continues: native code cannot be stopped. */
  #cancel(turn: Turn<Input, Output>): void {
    if (!this.#queue.items.includes(turn)) return;
    this.#queue.remove(turn);
    this.#queue.leave(turn.fairKey);
  }
}

/** What a thread has computed, in milliseconds; 0 where it has ended. */
async function cpuMsOf(thread: Worker): Promise<number> {
  const { user, system } = await thread.cpuUsage().catch(() => ({ user: 0, system: 0 }));
  return (user + system) / 1_000;
}

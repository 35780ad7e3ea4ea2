import { Backoff } from "@heddle/base/backoff";

const BACKOFF = { baseMs: 200, maxMs: 60_000 };

export interface WorkQueueOptions {
  /** Keys that are worked on at the same time, at most. */
  readonly concurrency: number;
  /** Brings one key's objects to what they are to be; rejects to be called again. */
  readonly work: (key: string) => Promise<void>;
  readonly onError: (key: string, error: unknown, pauseMs: number) => void;
}

/**
 * Keys that wait for work; failed work is repeated with back-off. A key waits once, and is never
 * worked on twice at the same time, so the queue has at most one entry for each object.
 */
export class WorkQueue {
  readonly #options: WorkQueueOptions;
  readonly #waiting = new Set<string>();
  readonly #running = new Map<string, Promise<void>>();
  readonly #timers = new Map<string, NodeJS.Timeout>();
  readonly #backoffs = new Map<string, Backoff>();
  #isClosed = false;

  constructor(options: WorkQueueOptions) {
    this.#options = options;
  }

  /** Keys that wait, or are worked on. */
  get size(): number {
    return this.#waiting.size + this.#running.size;
  }

  add(key: string): void {
    if (this.#isClosed) return;
    clearTimeout(this.#timers.get(key));
    this.#timers.delete(key);
    this.#waiting.add(key);
    this.#start();
  }

  /** Adds the key after a time, unless it is added before. */
  addAfter(key: string, ms: number): void {
    if (this.#isClosed || this.#waiting.has(key) || this.#timers.has(key)) return;
    this.#timers.set(
      key,
      setTimeout(() => this.add(key), ms),
    );
  }

  /** Resolves when the work under way has ended; nothing new is begun. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#waiting.clear();
    for (const timer of this.#timers.values()) clearTimeout(timer);
    this.#timers.clear();
    await Promise.all(this.#running.values());
  }

  #start(): void {
    for (const key of this.#waiting) {
      if (this.#running.size >= this.#options.concurrency) return;
      if (this.#running.has(key)) continue;
      this.#waiting.delete(key);
      this.#running.set(key, this.#run(key));
    }
  }

  async #run(key: string): Promise<void> {
    // The map has the promise before the work can end.
    await null;
    try {
      await this.#options.work(key);
      this.#backoffs.delete(key);
    } catch (error) {
      const backoff = this.#backoffs.get(key) ?? new Backoff(BACKOFF);
      this.#backoffs.set(key, backoff);
      const pauseMs = backoff.nextMs();
      this.#options.onError(key, error, pauseMs);
      this.addAfter(key, pauseMs);
    } finally {
      this.#running.delete(key);
      if (!this.#isClosed) this.#start();
    }
  }
}

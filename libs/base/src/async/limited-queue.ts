/** Pieces of work that may run at a time, and that may wait. */
interface Limits {
  readonly running: number;
  readonly waiting: number;
}

/** Runs a limited number of pieces of work at a time, first in, first out. */
export class LimitedQueue {
  readonly #limits: Limits;
  /** Makes the error for a full queue. */
  readonly #onFull: () => Error;
  readonly #waiting = new Set<() => void>();
  #running = 0;

  constructor(limits: Limits, onFull: () => Error) {
    this.#limits = limits;
    this.#onFull = onFull;
  }

  /** Rejects when the queue is full, or with the signal's reason when it aborts before the turn. */
  async run<T>(work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    signal?.throwIfAborted();
    if (this.#running >= this.#limits.running) await this.#turn(signal);
    else this.#running += 1;
    try {
      return await work();
    } finally {
      this.#pass();
    }
  }

  #turn(signal: AbortSignal | undefined): Promise<void> {
    if (this.#waiting.size >= this.#limits.waiting) return Promise.reject(this.#onFull());
    return new Promise((resolve, reject) => {
      const begin = () => {
        signal?.removeEventListener("abort", onAbort);
        resolve();
      };
      const onAbort = () => {
        this.#waiting.delete(begin);
        reject(signal?.reason);
      };
      signal?.addEventListener("abort", onAbort, { once: true });
      this.#waiting.add(begin);
    });
  }

  /** The place of ended work goes to the next, or becomes free. */
  #pass(): void {
    const [next] = this.#waiting;
    if (!next) {
      this.#running -= 1;
      return;
    }
    this.#waiting.delete(next);
    next();
  }
}

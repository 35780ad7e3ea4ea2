/**
 * An ordered queue from one producer to one consumer, as an async iterable.
 *
 * - The producer pushes without waiting, and `size` is the consumer's lag.
 * - A push beyond `capacity` returns false and drops the item. A caller that cannot lose items must
 *   use credits.
 * - After `close` the consumer gets the buffered items and then the end; after `fail` it gets the
 *   error instead of the end.
 */
export class Channel<T> implements AsyncIterable<T> {
  readonly capacity: number;
  #items: T[] = [];
  #head = 0;
  #waiting: { resolve(result: IteratorResult<T>): void; reject(error: unknown): void } | undefined;
  #ended: { error?: unknown } | undefined;
  #onReturn: (() => void) | undefined;

  constructor(capacity: number, onReturn?: () => void) {
    if (!(capacity > 0)) throw new RangeError(`capacity must be positive, got ${capacity}`);
    this.capacity = capacity;
    this.#onReturn = onReturn;
  }

  /** Items pushed and not yet consumed. */
  get size(): number {
    return this.#items.length - this.#head;
  }

  get ended(): boolean {
    return this.#ended !== undefined;
  }

  push(item: T): boolean {
    if (this.#ended) return false;
    const waiting = this.#waiting;
    if (waiting) {
      this.#waiting = undefined;
      waiting.resolve({ value: item, done: false });
      return true;
    }
    if (this.size >= this.capacity) return false;
    this.#items.push(item);
    return true;
  }

  close(): void {
    this.#end({});
  }

  fail(error: unknown): void {
    this.#end({ error });
  }

  #end(end: { error?: unknown }): void {
    if (this.#ended) return;
    this.#ended = end;
    const waiting = this.#waiting;
    if (!waiting) return;
    this.#waiting = undefined;
    this.#settle(waiting, end);
  }

  #settle(
    waiter: { resolve(result: IteratorResult<T>): void; reject(error: unknown): void },
    end: { error?: unknown },
  ): void {
    if ("error" in end) waiter.reject(end.error);
    else waiter.resolve({ value: undefined, done: true });
  }

  #next(): Promise<IteratorResult<T>> {
    if (this.#head < this.#items.length) {
      const value = this.#items[this.#head++] as T;
      if (this.#head === this.#items.length) {
        this.#items = [];
        this.#head = 0;
      }
      return Promise.resolve({ value, done: false });
    }
    return new Promise((resolve, reject) => {
      const waiter = { resolve, reject };
      if (this.#ended) this.#settle(waiter, this.#ended);
      else if (this.#waiting) reject(new Error("a channel has one consumer"));
      else this.#waiting = waiter;
    });
  }

  /** The consumer's side; leaving the loop early ends the channel and notifies the producer. */
  [Symbol.asyncIterator](): AsyncIterator<T> {
    return {
      next: () => this.#next(),
      return: async () => {
        this.#end({});
        this.#items = [];
        this.#head = 0;
        this.#onReturn?.();
        return { value: undefined, done: true };
      },
    };
  }
}

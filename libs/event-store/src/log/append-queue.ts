import { AppError } from "@heddle/base/errors";

interface Waiter {
  readonly first: number;
  readonly end: number;
  readonly bytes: number;
  resolve(range: AppendedRange): void;
  reject(error: unknown): void;
}

/** Where entries are in the log: from `first` to the one before `end`. */
export interface AppendedRange {
  readonly first: number;
  readonly end: number;
}

/** Entries that wait for the disk, in the order of the calls, and who waits for them. */
export class AppendQueue {
  readonly #maxBytes: number;
  #entries: Uint8Array[] = [];
  #head = 0;
  #waiters: Waiter[] = [];
  /** The sequence number of the next entry. */
  #next: number;
  /** The bytes of entries that are not on the disk. */
  #bytes = 0;

  constructor(next: number, maxBytes: number) {
    this.#next = next;
    this.#maxBytes = maxBytes;
  }

  get isEmpty(): boolean {
    return this.#head === this.#entries.length;
  }

  /** Rejects with `overloaded` where too many bytes wait. */
  add(entries: readonly Uint8Array[]): Promise<AppendedRange> {
    let bytes = 0;
    for (const entry of entries) bytes += entry.byteLength;
    if (this.#bytes > 0 && this.#bytes + bytes > this.#maxBytes) {
      const message = `${this.#bytes} bytes of events wait for the disk. Try again shortly`;
      return Promise.reject(new AppError("overloaded", message, { retryAfterMs: 1_000 }));
    }
    for (const entry of entries) this.#entries.push(entry);
    this.#bytes += bytes;
    const first = this.#next;
    this.#next += entries.length;
    return new Promise((resolve, reject) => {
      this.#waiters.push({ first, end: this.#next, bytes, resolve, reject });
    });
  }

  /** The next entries: at least one, and then as many as the bounds allow. */
  take(maxCount: number, maxBytes: number): Uint8Array[] {
    let bytes = 0;
    let end = this.#head;
    while (end < this.#entries.length && end - this.#head < maxCount) {
      bytes += (this.#entries[end] as Uint8Array).byteLength;
      if (bytes > maxBytes && end > this.#head) break;
      end++;
    }
    const taken = this.#entries.slice(this.#head, end);
    this.#head = end;
    if (this.isEmpty) {
      this.#entries = [];
      this.#head = 0;
    }
    return taken;
  }

  /** All entries before that one are on the disk. */
  settle(size: number): void {
    let done = 0;
    for (const { first, end, bytes, resolve } of this.#waiters) {
      if (end > size) break;
      this.#bytes -= bytes;
      resolve({ first, end });
      done++;
    }
    if (done > 0) this.#waiters = this.#waiters.slice(done);
  }

  fail(error: unknown): void {
    for (const { reject } of this.#waiters) reject(error);
    this.#waiters = [];
    this.#entries = [];
    this.#head = 0;
  }
}

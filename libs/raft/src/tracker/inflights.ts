import { invariant } from "../invariant.ts";

/**
 * The unacknowledged append messages from a leader to one follower, in the order sent. They are
 * bounded by count and by bytes.
 */
export class Inflights {
  readonly #maxCount: number;
  readonly #maxBytes: number;
  /** The index of the last entry of each message, ascending; [head, length) are in flight. */
  #indexes: number[] = [];
  /** The payload bytes of each message, parallel to #indexes. */
  #sizes: number[] = [];
  /** The position of the oldest message in flight; 0 <= #head <= #indexes.length. */
  #head = 0;
  /** The sum of the sizes of the messages in flight. */
  #bytes = 0;

  constructor(maxCount: number, maxBytes: number) {
    this.#maxCount = maxCount;
    this.#maxBytes = maxBytes;
  }

  get count(): number {
    return this.#indexes.length - this.#head;
  }

  /** True once either bound is reached; the last message added may exceed the bytes. */
  get full(): boolean {
    return this.count >= this.#maxCount || this.#bytes >= this.#maxBytes;
  }

  add(index: number, bytes: number): void {
    invariant(!this.full, () => `an append up to index ${index} was sent while inflights are full`);
    this.#indexes.push(index);
    this.#sizes.push(bytes);
    this.#bytes += bytes;
  }

  /** Drops every message whose last entry is at or below the index. */
  freeUpTo(index: number): void {
    while (this.#head < this.#indexes.length && (this.#indexes[this.#head] as number) <= index) {
      this.#bytes -= this.#sizes[this.#head] as number;
      this.#head++;
    }
    // Compacting only when half is free keeps the cost of each message constant.
    if (this.#head * 2 >= this.#indexes.length) {
      this.#indexes = this.#indexes.slice(this.#head);
      this.#sizes = this.#sizes.slice(this.#head);
      this.#head = 0;
    }
  }

  reset(): void {
    this.#indexes = [];
    this.#sizes = [];
    this.#head = 0;
    this.#bytes = 0;
  }
}

import { abortableDelay } from "@heddle/base/async/abortable-delay";
import type { AppError } from "@heddle/base/errors";
import type { BatchProgress } from "./batch-store.ts";

/** The result of a line, as its line of a file. */
export interface LineResult {
  readonly index: number;
  readonly text: string;
  readonly isSuccess: boolean;
}

/** Results that wait for the next write, in bytes. */
const MAX_PENDING_BYTES = 8 * 2 ** 20;
/** From here on they are written at once. */
const DUE_BYTES = 2 ** 20;
/** How far lines may run ahead of the first one that has no result. */
const MAX_AHEAD = 1_024;

/** What is written at once. */
export interface ResultPiece {
  readonly indices: readonly number[];
  readonly output: Buffer;
  readonly errors: Buffer;
  readonly completed: number;
  readonly failed: number;
}

/** The results of a batch on their way to its record. */
export class BatchResults {
  #pending: LineResult[] = [];
  #bytes = 0;
  /** The index below which the results of all lines are written. */
  #base: number;
  #done: Set<number>;
  #change = Promise.withResolvers<void>();
  #isClosed = false;
  /** Ends the wait for the next write. */
  #urgent = new AbortController();
  /** Why results cannot be written any more. */
  fault: AppError | undefined;

  constructor({ base, done }: Pick<BatchProgress, "base" | "done">) {
    this.#base = base;
    this.#done = new Set(done);
  }

  /** Whether the line's result is written. */
  has(index: number): boolean {
    return index < this.#base || this.#done.has(index);
  }

  /** Whether another line may start. */
  mayStart(index: number): boolean {
    return this.#bytes < MAX_PENDING_BYTES && index < this.#base + MAX_AHEAD;
  }

  get isEmpty(): boolean {
    return this.#pending.length === 0;
  }

  /** Resolves at the next change: a result is added, some are written, or `wake`. */
  get changed(): Promise<void> {
    return this.#change.promise;
  }

  add(result: LineResult): void {
    this.#pending.push(result);
    this.#bytes += Buffer.byteLength(result.text);
    if (this.#bytes >= DUE_BYTES) this.#urgent.abort();
    this.wake();
  }

  /** Resolves after the time, or before when much is pending; true once no more is added. */
  async due(ms: number): Promise<boolean> {
    this.#urgent = new AbortController();
    if (this.#bytes < DUE_BYTES && !this.#isClosed) {
      await abortableDelay(ms, this.#urgent.signal);
    }
    return this.#isClosed;
  }

  /** No more is added. */
  close(): void {
    this.#isClosed = true;
    this.#urgent.abort();
  }

  /** The results so far; they count as pending until `written`. */
  take(): ResultPiece {
    const pending = [...this.#pending];
    const texts = (isSuccess: boolean) =>
      pending.flatMap((result) => (result.isSuccess === isSuccess ? [result.text] : []));
    const [output, errors] = [texts(true), texts(false)];
    return {
      indices: pending.map(({ index }) => index),
      output: Buffer.from(output.join("")),
      errors: Buffer.from(errors.join("")),
      completed: output.length,
      failed: errors.length,
    };
  }

  /** The progress once these results are written too. */
  after({ indices }: ResultPiece): Pick<BatchProgress, "base" | "done"> {
    const done = new Set([...this.#done, ...indices]);
    let base = this.#base;
    while (done.delete(base)) base++;
    return { base, done: [...done].sort((one, other) => one - other) };
  }

  written(piece: ResultPiece): void {
    const { base, done } = this.after(piece);
    this.#base = base;
    this.#done = new Set(done);
    this.#pending = this.#pending.slice(piece.indices.length);
    this.#bytes -= piece.output.byteLength + piece.errors.byteLength;
    this.wake();
  }

  wake(): void {
    this.#change.resolve();
    this.#change = Promise.withResolvers();
  }
}

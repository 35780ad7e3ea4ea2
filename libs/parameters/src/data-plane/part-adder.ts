import { AppError } from "@heddle/base/errors";
import type { KernelMemory, Kernels } from "@heddle/kernels/kernels";
import {
  type Compression,
  compressedBytes,
  PAIR_BYTES,
  partBytes,
  SLICE_ELEMENTS,
  scaleBytes,
} from "../shards/compression.ts";
import type { DataSink } from "./data-connection.ts";
import type { DataHead } from "./data-frames.ts";

/** Bytes of staging that a PartAdder needs; a slice of every kind fits. */
export const STAGING_BYTES = SLICE_ELEMENTS * 4;

/**
 * Added at once of an uncompressed part: with its sums it takes half of a core's 1 MiB of cache.
 */
const PLAIN_SLICE_ELEMENTS = 64 * 1024;

/** The destination of parts: byte offsets, multiples of 16, into one memory. */
export interface Accumulator {
  readonly memory: KernelMemory;
  readonly kernels: Kernels;
  readonly sums: number;
  readonly staging: number;
  /** A multiple of 256. */
  readonly elements: number;
}

/**
 * Adds a part, times its weight, slice by slice while each is in the cache. The `first` of an
 * update replaces the previous sums. Throws an AppError `invalid_value` for a wrong length or a
 * value that is not finite; the sums are then invalid.
 */
export class PartAdder implements DataSink {
  readonly #acc: Accumulator;
  readonly #compression: Compression;
  readonly #weight: number;
  readonly #first: boolean;
  readonly #staging: Uint8Array;
  /** Elements added, and bytes of the current slice. */
  #added = 0;
  #got = 0;
  #left = 0;
  #lastIndex = -1;
  #touched = false;

  constructor(acc: Accumulator, compression: Compression, weight: number, first: boolean) {
    this.#acc = acc;
    this.#compression = compression;
    this.#weight = weight;
    this.#first = first;
    this.#staging = new Uint8Array(acc.memory.buffer, acc.staging, STAGING_BYTES);
  }

  /** Whether the sums may contain some of this part. */
  get touched(): boolean {
    return this.#touched;
  }

  begin({ bytes }: DataHead): void {
    const expected = partBytes(this.#compression, this.#acc.elements);
    const sparse = this.#compression === "topk";
    if (sparse ? bytes > expected || bytes % PAIR_BYTES !== 0 : bytes !== expected) {
      throw new AppError(
        "invalid_value",
        `a part of ${bytes} bytes was refused: ${this.#acc.elements} elements as ` +
          `${this.#compression} are ${sparse ? "at most " : ""}${expected}; ` +
          "worker and server must have the same model and compression",
      );
    }
    this.#left = bytes;
    if (sparse && this.#first) this.#clear(0, this.#acc.elements);
  }

  space(): Uint8Array {
    return this.#staging.subarray(this.#got, this.#sliceBytes());
  }

  filled(bytes: number): void {
    this.#got += bytes;
    this.#left -= bytes;
    if (this.#got < this.#sliceBytes() && this.#left > 0) return;
    this.#touched = true;
    if (this.#compression === "topk") this.#addPairs(this.#got);
    else this.#addSlice(this.#compression);
    this.#got = 0;
  }

  /** Takes bytes from elsewhere. */
  copy(bytes: Uint8Array): void {
    for (let at = 0; at < bytes.length; ) {
      const space = this.space();
      const count = Math.min(space.length, bytes.length - at, this.#left);
      if (count === 0) this.begin({ version: 0, bytes: -1 });
      space.set(bytes.subarray(at, at + count));
      this.filled(count);
      at += count;
    }
  }

  /** Throws an AppError `invalid_value` where bytes are missing. */
  end(): void {
    if (this.#left === 0) return;
    throw new AppError("invalid_value", `a part ended ${this.#left} bytes too early`);
  }

  #sliceBytes(): number {
    if (this.#compression === "topk") return STAGING_BYTES;
    return compressedBytes(this.#compression, this.#sliceElements());
  }

  #sliceElements(): number {
    const most = this.#compression === "none" ? PLAIN_SLICE_ELEMENTS : SLICE_ELEMENTS;
    return Math.min(most, this.#acc.elements - this.#added);
  }

  #addSlice(compression: Exclude<Compression, "topk">): void {
    const { kernels, staging } = this.#acc;
    const count = this.#sliceElements();
    const to = this.#acc.sums + this.#added * 4;
    let poisoned: number;
    if (compression === "none") {
      poisoned = kernels.addScaled(to, staging, count, this.#weight, this.#first ? 1 : 0);
    } else {
      if (this.#first) this.#clear(this.#added, count);
      if (compression === "bf16") kernels.addBf16(to, staging, count, this.#weight);
      else kernels.addInt8(to, staging + scaleBytes(count), staging, count, this.#weight);
      poisoned = kernels.notFinite(to, count);
    }
    if (poisoned) throw notFiniteError(this.#added, this.#added + count);
    this.#added += count;
  }

  #addPairs(bytes: number): void {
    const { memory, staging, sums: base, elements } = this.#acc;
    const indices = new Uint32Array(memory.buffer, staging, bytes / 4);
    const values = new Float32Array(memory.buffer, staging, bytes / 4);
    const sums = new Float32Array(memory.buffer, base, elements);
    for (let pair = 0; pair < indices.length; pair += 2) {
      const at = indices[pair] ?? 0;
      const value = values[pair + 1] ?? 0;
      if (at >= elements || at <= this.#lastIndex) {
        throw new AppError("invalid_value", `a sparse part has the index ${at} out of order`);
      }
      if (!Number.isFinite(value)) throw notFiniteError(at, at + 1);
      sums[at] = (sums[at] ?? 0) + this.#weight * value;
      this.#lastIndex = at;
    }
  }

  #clear(begin: number, count: number): void {
    new Float32Array(this.#acc.memory.buffer, this.#acc.sums + begin * 4, count).fill(0);
  }
}

/** The error of a part with a value that is not finite in these elements. */
export function notFiniteError(begin: number, end: number): AppError {
  return new AppError(
    "invalid_value",
    `a part was refused: elements ${begin} to ${end} of the shard hold NaN or infinity. ` +
      "Training has diverged: lower the learning rate, or look for bad numbers in the data",
  );
}

import { AppError } from "@heddle/base/errors";
import type { DataHead } from "@heddle/parameters/data-plane/data-frames";
import type { CopyingSink } from "@heddle/parameters/data-plane/data-route";
import type { ShardSlab } from "../slab/shard-slab.ts";

/** Receives a job's first parameters directly into the slab. */
export class SlabFill implements CopyingSink {
  readonly #slab: ShardSlab;
  readonly #bytes: Uint8Array;
  #got = 0;

  constructor(slab: ShardSlab) {
    this.#slab = slab;
    this.#bytes = slab.bytes(0);
  }

  begin({ bytes }: DataHead): void {
    if (bytes === this.#bytes.length) return;
    throw new AppError(
      "invalid_value",
      `first parameters of ${bytes} bytes were refused: the shard has ${this.#bytes.length}; ` +
        "worker and server must have the same model",
    );
  }

  space(): Uint8Array {
    return this.#bytes.subarray(this.#got);
  }

  filled(bytes: number): void {
    this.#got += bytes;
    if (this.#got === this.#bytes.length && !this.#slab.isFinite()) {
      throw new AppError(
        "invalid_value",
        "first parameters were refused: they hold NaN or infinity",
      );
    }
  }

  copy(bytes: Uint8Array): void {
    this.begin({ version: 0, bytes: Math.max(this.#bytes.length, this.#got + bytes.length) });
    this.#bytes.set(bytes, this.#got);
    this.filled(bytes.length);
  }

  end(): void {
    this.begin({ version: 0, bytes: this.#got });
  }
}

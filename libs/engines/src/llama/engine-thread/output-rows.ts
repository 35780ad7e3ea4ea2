import koffi from "koffi";
import type { Pointer } from "../native/layouts.ts";

/**
 * What the last decode gave per output, logits or embeddings, as typed arrays over native memory.
 * The views are made again only where the library moved its buffer.
 */
export class OutputRows {
  readonly #columns: number;
  readonly #capacity: number;
  #address: Pointer = null;
  #rows: Float32Array[] = [];

  /** Only rows that a decode gave may be read: the buffer may have fewer than `capacity`. */
  constructor(columns: number, capacity: number) {
    this.#columns = columns;
    this.#capacity = capacity;
  }

  /** Says where the rows are; they are valid until the next decode. */
  point(address: Pointer): void {
    if (address === null) throw new Error("llama_decode gave no outputs");
    if (address === this.#address) return;
    this.#address = address;
    const bytes = this.#columns * 4;
    const memory = koffi.view(address, this.#capacity * bytes);
    this.#rows = Array.from(
      { length: this.#capacity },
      (_, row) => new Float32Array(memory, row * bytes, this.#columns),
    );
  }

  /** The values of output `row`, in the order in which the batch asked for outputs. */
  row(row: number): Float32Array {
    return this.#rows[row] as Float32Array;
  }
}

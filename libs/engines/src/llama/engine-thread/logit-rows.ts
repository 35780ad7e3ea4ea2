import koffi from "koffi";
import type { Pointer } from "../native/layouts.ts";

/**
 * The logits of the last decode as typed arrays over native memory, one per output. The views are
 * made again only where the library moved its buffer.
 */
export class LogitRows {
  readonly #vocabularySize: number;
  readonly #capacity: number;
  #address: Pointer = null;
  #rows: Float32Array[] = [];

  /** `capacity` is n_seq_max: the library's buffer never has fewer rows. */
  constructor(vocabularySize: number, capacity: number) {
    this.#vocabularySize = vocabularySize;
    this.#capacity = capacity;
  }

  /** Says where the logits are; rows are valid until the next decode. */
  point(address: Pointer): void {
    if (address === null) throw new Error("llama_get_logits gave no logits");
    if (address === this.#address) return;
    this.#address = address;
    const bytes = this.#vocabularySize * 4;
    const memory = koffi.view(address, this.#capacity * bytes);
    this.#rows = Array.from(
      { length: this.#capacity },
      (_, row) => new Float32Array(memory, row * bytes, this.#vocabularySize),
    );
  }

  /** The logits of output `row`, in the order in which the batch asked for outputs. */
  row(row: number): Float32Array {
    return this.#rows[row] as Float32Array;
  }
}

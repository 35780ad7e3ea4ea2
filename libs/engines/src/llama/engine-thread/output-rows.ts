import koffi from "koffi";
import type { TextSequence } from "../kv-cache/sequence.ts";
import type { Pointer } from "../native/layouts.ts";
import { type RowLogprobs, rowLogprobs } from "../sampling/logprobs.ts";

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

  /** The scores of the prompt's next tokens, one a row; undefined where a row has no numbers. */
  scores(sequence: TextSequence, firstRow: number, count: number): RowLogprobs[] | undefined {
    const { request, tokens } = sequence;
    const scores: RowLogprobs[] = [];
    for (let row = firstRow; row < firstRow + count; row++) {
      const logits = this.row(row);
      if (Number.isNaN(logits[0])) return undefined;
      const token = tokens.values[sequence.scored++] as number;
      scores.push(rowLogprobs(logits, request.topLogprobs, token));
    }
    return scores;
  }
}

import type { Llama } from "./bindings.ts";
import type { VocabularyTable } from "./thread-messages.ts";

/** Longer texts are tokenized off this thread: a megabyte takes over half a second. */
const MAX_INLINE_BYTES = 8 * 1024;

/** Text to token ids, in the thread that streams: long texts go to the thread pool. */
export class Tokenizer {
  readonly #llama: Llama;
  readonly #table: VocabularyTable;

  constructor(llama: Llama, table: VocabularyTable) {
    this.#llama = llama;
    this.#table = table;
  }

  /** The tokens, at once for a short text. The vocabulary's own begin token comes first, once. */
  tokenize(text: string): Int32Array | Promise<Int32Array> {
    const bytes = Buffer.from(text, "utf8");
    const hasBegin = this.#table.bos !== "" && text.startsWith(this.#table.bos);
    // A token stands for at least one byte, but for the begin, the end and a joining space.
    const out = new Int32Array(bytes.length + 4);
    if (bytes.length <= MAX_INLINE_BYTES) {
      const { address } = this.#table;
      const count = this.#llama.tokenize(
        address,
        bytes,
        bytes.length,
        out,
        out.length,
        !hasBegin,
        true,
      );
      return taken(out, count);
    }
    return this.#inPool(bytes, out, !hasBegin);
  }

  #inPool(bytes: Buffer, out: Int32Array, addSpecial: boolean): Promise<Int32Array> {
    const { address } = this.#table;
    return new Promise((resolve, reject) => {
      this.#llama.tokenize.async(
        address,
        bytes,
        bytes.length,
        out,
        out.length,
        addSpecial,
        true,
        (error: unknown, count: number) => {
          if (error) reject(error);
          else resolve(taken(out, count));
        },
      );
    });
  }
}

function taken(out: Int32Array, count: number): Int32Array {
  if (count < 0) throw new Error(`llama_tokenize gave ${count} for room for ${out.length} tokens`);
  return out.slice(0, count);
}

import type { PromptPart } from "../text/prompt-guard.ts";
import type { Llama } from "./bindings.ts";
import type { VocabularyTable } from "./thread-messages.ts";

/** Longer texts are tokenized off this thread: a megabyte takes over half a second. */
const MAX_INLINE_BYTES = 8 * 1024;

/** What the library is told beside the text. */
interface Reading {
  /** The vocabulary's own begin token comes first. */
  readonly addSpecial: boolean;
  /** The texts of control tokens are those tokens. */
  readonly parseSpecial: boolean;
}

/** For what lies between control tokens. */
const PLAIN: Reading = { addSpecial: false, parseSpecial: false };

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
    const reading = { addSpecial: !hasBegin, parseSpecial: true };
    return bytes.length <= MAX_INLINE_BYTES
      ? this.#now(bytes, reading)
      : this.#later(bytes, reading);
  }

  /**
   * The same for a prompt that was taken apart at its control tokens, which is how the library
   * reads one: what lies between two is tokenized by itself, only that no further ones are read in it.
   */
  tokenizeParts(parts: readonly PromptPart[]): Int32Array | Promise<Int32Array> {
    const pieces = parts.map((part) =>
      typeof part === "number" ? part : Buffer.from(part, "utf8"),
    );
    const begin = this.#beginOf(parts);
    const bytes = pieces.reduce<number>((sum, piece) => sum + lengthOf(piece), 0);
    if (bytes > MAX_INLINE_BYTES) return this.#inTurns(begin, pieces);
    return joined([begin, ...pieces.map((piece) => this.#piece(piece))]);
  }

  /** One after another, so that this thread is never held up for long, nor the pool taken by one. */
  async #inTurns(begin: Int32Array, pieces: readonly (number | Buffer)[]): Promise<Int32Array> {
    const read = [begin];
    let inlineBytes = 0;
    for (const piece of pieces) {
      inlineBytes += lengthOf(piece);
      const isShort = typeof piece === "number" || inlineBytes <= MAX_INLINE_BYTES;
      read.push(isShort ? this.#piece(piece) : await this.#later(piece, PLAIN));
      if (!isShort) inlineBytes = 0;
    }
    return joined(read);
  }

  #piece(piece: number | Buffer): Int32Array {
    return typeof piece === "number" ? Int32Array.of(piece) : this.#now(piece, PLAIN);
  }

  /** The begin token, where the vocabulary adds one and the parts do not begin with it. */
  #beginOf([first]: readonly PromptPart[]): Int32Array {
    const added = this.#now(Buffer.alloc(0), { ...PLAIN, addSpecial: true });
    const isBegin = added.length > 0 && this.#spelling(added[0] as number) === this.#table.bos;
    return isBegin && added[0] !== first ? added.subarray(0, 1) : new Int32Array(0);
  }

  #spelling(token: number): string {
    const { bytes, offsets } = this.#table;
    return Buffer.from(bytes.slice(offsets[token], offsets[token + 1])).toString("utf8");
  }

  #now(bytes: Buffer, { addSpecial, parseSpecial }: Reading): Int32Array {
    const out = roomFor(bytes);
    const { address } = this.#table;
    const { length } = bytes;
    const { tokenize } = this.#llama;
    return taken(out, tokenize(address, bytes, length, out, out.length, addSpecial, parseSpecial));
  }

  #later(bytes: Buffer, { addSpecial, parseSpecial }: Reading): Promise<Int32Array> {
    const out = roomFor(bytes);
    const { address } = this.#table;
    return new Promise((resolve, reject) => {
      this.#llama.tokenize.async(
        address,
        bytes,
        bytes.length,
        out,
        out.length,
        addSpecial,
        parseSpecial,
        (error: unknown, count: number) => {
          if (error) reject(error);
          else resolve(taken(out, count));
        },
      );
    });
  }
}

/** A token stands for at least one byte, but for the begin, the end and a joining space. */
function roomFor(bytes: Buffer): Int32Array {
  return new Int32Array(bytes.length + 4);
}

function taken(out: Int32Array, count: number): Int32Array {
  if (count < 0) throw new Error(`llama_tokenize gave ${count} for room for ${out.length} tokens`);
  return out.slice(0, count);
}

function lengthOf(piece: number | Buffer): number {
  return typeof piece === "number" ? 0 : piece.length;
}

function joined(lists: readonly Int32Array[]): Int32Array {
  const all = new Int32Array(lists.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const list of lists) {
    all.set(list, at);
    at += list.length;
  }
  return all;
}

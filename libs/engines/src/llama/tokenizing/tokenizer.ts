import type { PromptPart } from "../../text/prompt-guard.ts";
import type { Llama } from "../native/bindings.ts";
import type { VocabularyTable } from "../protocol/thread-messages.ts";
import { isCut, textPieces } from "./text-pieces.ts";

/** The tokens of a prompt; not of the whole of it where the first of them were too many. */
interface PromptTokens {
  readonly tokens: Int32Array;
  readonly isWhole: boolean;
}

/** The library's options for reading a text. */
interface Reading {
  /** The vocabulary's own begin token comes first. */
  readonly addSpecial: boolean;
  /** The texts of control tokens are those tokens. */
  readonly parseSpecial: boolean;
}

/** For what lies between control tokens. */
const PLAIN: Reading = { addSpecial: false, parseSpecial: false };

const UNFRAMED = { begin: new Int32Array(0), end: new Int32Array(0) };

/** Read with and without added tokens, it shows which ones the vocabulary adds. */
const SAMPLE = "a";

/** Text to token ids, in the thread that asks: a megabyte takes over half a second. */
export class Tokenizer {
  readonly #llama: Llama;
  readonly #table: VocabularyTable;

  constructor(llama: Llama, table: VocabularyTable) {
    this.#llama = llama;
    this.#table = table;
  }

  /** Whether a text is to be taken apart at its control tokens, since it is tokenized in pieces. */
  takesApart(text: string): boolean {
    return isCut(text, this.#table.cuts);
  }

  /** The tokens. The vocabulary's own begin token comes first, once, unless the text is bare. */
  tokenize(text: string, isBare = false): PromptTokens {
    const hasBegin = this.#table.bos !== "" && text.startsWith(this.#table.bos);
    const tokens = this.#read(text, { addSpecial: !isBare && !hasBegin, parseSpecial: true });
    return { tokens, isWhole: true };
  }

  /**
   * The same for a prompt that was taken apart at its control tokens, as the library does, without
   * reading further ones between them. Ends as soon as there are more tokens than `most`.
   */
  tokenizeParts(parts: readonly PromptPart[], most: number, isBare = false): PromptTokens {
    const { begin, end } = isBare ? UNFRAMED : this.#framing(parts);
    const lists = [begin];
    let count = lists[0]?.length ?? 0;
    for (const part of parts) {
      for (const tokens of this.#part(part)) {
        if (count > most) return { tokens: joined(lists), isWhole: false };
        lists.push(tokens);
        count += tokens.length;
      }
    }
    return { tokens: joined([...lists, end]), isWhole: true };
  }

  /** The text that tokens spell, without the space that the library puts before a text. */
  spelled(tokens: readonly number[]): string {
    const { bytes, offsets, bos, cuts } = this.#table;
    const pieces = tokens.map((token) => bytes.slice(offsets[token], offsets[token + 1]));
    const text = Buffer.concat(pieces).toString("utf8");
    const at = bos !== "" && text.startsWith(bos) ? bos.length : 0;
    const isSpaceAdded = cuts.spaceTokens > 0 && text[at] === " ";
    return isSpaceAdded ? text.slice(0, at) + text.slice(at + 1) : text;
  }

  /** The text of each token; a part of a character is U+FFFD. */
  pieces(tokens: Int32Array): string[] {
    return Array.from(tokens, (token) => this.#spelling(token));
  }

  *#part(part: PromptPart): Generator<Int32Array, void> {
    if (typeof part === "number") {
      yield Int32Array.of(part);
      return;
    }
    let isFirst = true;
    for (const piece of textPieces(part, this.#table.cuts)) {
      yield isFirst ? this.#read(piece, PLAIN) : this.#readOn(piece);
      isFirst = false;
    }
  }

  /** A piece that continues: its own space is the one that the library adds, or that one is no part of it. */
  #readOn(piece: string): Int32Array {
    const { spaceTokens } = this.#table.cuts;
    if (spaceTokens > 0 && piece.startsWith(" ")) return this.#read(piece.slice(1), PLAIN);
    return this.#read(piece, PLAIN).subarray(spaceTokens);
  }

  /** What the vocabulary adds: a begin token that the parts do not begin with, and an end token. */
  #framing([first]: readonly PromptPart[]): { begin: Int32Array; end: Int32Array } {
    const plain = this.#read(SAMPLE, PLAIN);
    const framed = this.#read(SAMPLE, { ...PLAIN, addSpecial: true });
    const isBegin =
      framed[0] !== plain[0] && this.#spelling(framed[0] as number) === this.#table.bos;
    const at = isBegin ? 1 : 0;
    const begin = framed.subarray(0, framed[0] === first ? 0 : at);
    return { begin, end: framed.subarray(at + plain.length) };
  }

  #spelling(token: number): string {
    const { bytes, offsets } = this.#table;
    return Buffer.from(bytes.slice(offsets[token], offsets[token + 1])).toString("utf8");
  }

  #read(text: string, { addSpecial, parseSpecial }: Reading): Int32Array {
    const bytes = Buffer.from(text, "utf8");
    const out = roomFor(bytes);
    const { address } = this.#table;
    const { length } = bytes;
    const { tokenize } = this.#llama;
    return taken(out, tokenize(address, bytes, length, out, out.length, addSpecial, parseSpecial));
  }
}

/** A token has at least one byte, except the begin, the end and a joining space. */
function roomFor(bytes: Buffer): Int32Array {
  return new Int32Array(bytes.length + 4);
}

function taken(out: Int32Array, count: number): Int32Array {
  if (count < 0) throw new Error(`llama_tokenize gave ${count} for room for ${out.length} tokens`);
  return out.slice(0, count);
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

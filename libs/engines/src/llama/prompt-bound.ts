import type { PromptPart } from "../text/prompt-guard.ts";
import type { VocabularyTable } from "./thread-messages.ts";

/**
 * How few tokens a prompt can have, before it is tokenized: as if all of it were the vocabulary's
 * longest token. White space is not counted, since some vocabularies swallow it.
 */
export class PromptBound {
  readonly #longestBytes: number;

  constructor({ bytes, offsets }: Pick<VocabularyTable, "bytes" | "offsets">) {
    let longest = 1;
    for (let token = 0; token + 1 < offsets.length; token++) {
      const from = offsets[token] ?? 0;
      const to = offsets[token + 1] ?? from;
      if (to - from > longest) longest = Math.max(longest, solidBytes(bytes, from, to));
    }
    this.#longestBytes = longest;
  }

  /** Whether the parts have more tokens than `most` for certain: then how many at least. */
  exceeds(parts: readonly PromptPart[], most: number): number | undefined {
    let chars = 0;
    for (const part of parts) chars += typeof part === "number" ? this.#longestBytes : part.length;
    // UTF-8 takes at most three bytes for each of JavaScript's characters.
    if (chars * 3 <= most * this.#longestBytes) return undefined;
    let tokens = 0;
    for (const part of parts) {
      tokens += typeof part === "number" ? 1 : this.#leastTokens(part);
    }
    return tokens > most ? tokens : undefined;
  }

  #leastTokens(text: string): number {
    const bytes = Buffer.from(text, "utf8");
    return Math.ceil(solidBytes(bytes, 0, bytes.length) / this.#longestBytes);
  }
}

/** Bytes that are no white space of ASCII. */
function solidBytes(bytes: Uint8Array, from: number, to: number): number {
  let count = 0;
  for (let at = from; at < to; at++) {
    const byte = bytes[at] ?? 0;
    if (byte !== 0x20 && (byte < 0x09 || byte > 0x0d)) count++;
  }
  return count;
}

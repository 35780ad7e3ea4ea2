import type { PromptPart } from "../../text/prompt-guard.ts";
import type { VocabularyTable } from "../protocol/thread-messages.ts";

/**
 * How few tokens a prompt can have, before it is tokenized: as if all of it were the vocabulary's
 * longest token. The bytes that the vocabulary keeps are counted with white space and without, as
 * the longest token is often a run of blanks.
 */
export class PromptBound {
  readonly #kept: ByteCount;
  readonly #solid: ByteCount;

  constructor({ bytes, offsets, kept }: Pick<VocabularyTable, "bytes" | "offsets" | "kept">) {
    const solid = kept.map((isKept, byte) => (isBlank(byte) ? 0 : isKept));
    this.#kept = countOf(kept, bytes, offsets);
    this.#solid = countOf(solid, bytes, offsets);
  }

  /** Whether the parts have more tokens than `most` for certain: then how many at least. */
  exceeds(parts: readonly PromptPart[], most: number): number | undefined {
    let chars = 0;
    for (const part of parts) chars += typeof part === "number" ? 1 : part.length;
    // UTF-8 takes at most three bytes for each of JavaScript's characters.
    const fewest = this.#solid.longest === 0 ? this.#kept.longest : this.#solid.longest;
    if (fewest === 0 || (chars * 3 <= most * fewest && parts.length <= most)) return undefined;
    let tokens = 0;
    for (const part of parts) tokens += typeof part === "number" ? 1 : this.#leastTokens(part);
    return tokens > most ? tokens : undefined;
  }

  #leastTokens(text: string): number {
    const bytes = Buffer.from(text, "utf8");
    return Math.max(leastTokens(this.#kept, bytes), leastTokens(this.#solid, bytes));
  }
}

/** Which bytes count, as 0 or 1 for each, and how many of them the token has that has most. */
interface ByteCount {
  readonly counts: Uint8Array;
  readonly longest: number;
}

function countOf(counts: Uint8Array, bytes: Uint8Array, offsets: Uint32Array): ByteCount {
  let longest = 0;
  for (let token = 0; token + 1 < offsets.length; token++) {
    const from = offsets[token] ?? 0;
    const to = offsets[token + 1] ?? from;
    if (to - from > longest) longest = Math.max(longest, counted(counts, bytes, from, to));
  }
  return { counts, longest };
}

function leastTokens({ counts, longest }: ByteCount, bytes: Uint8Array): number {
  return longest === 0 ? 0 : Math.ceil(counted(counts, bytes, 0, bytes.length) / longest);
}

function counted(counts: Uint8Array, bytes: Uint8Array, from: number, to: number): number {
  let count = 0;
  for (let at = from; at < to; at++) count += counts[bytes[at] as number] as number;
  return count;
}

/** White space of ASCII. */
export function isBlank(byte: number): boolean {
  return byte === 0x20 || (byte >= 0x09 && byte <= 0x0d);
}

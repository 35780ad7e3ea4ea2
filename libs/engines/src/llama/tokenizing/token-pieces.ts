import type { VocabularyTable } from "../protocol/thread-messages.ts";

/** What each token of a vocabulary is, as bytes and as text; texts are decoded once and kept. */
export class TokenPieces {
  readonly #table: VocabularyTable;
  readonly #texts: (string | undefined)[] = [];
  readonly #isKnown: Uint8Array;
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true, fatal: true });

  constructor(table: VocabularyTable) {
    this.#table = table;
    this.#isKnown = new Uint8Array(table.flags.length);
  }

  flags(token: number): number {
    return this.#table.flags[token] as number;
  }

  /** A copy: TextDecoder refuses shared memory. */
  bytes(token: number): Uint8Array {
    return this.#table.bytes.slice(this.#table.offsets[token], this.#table.offsets[token + 1]);
  }

  /** The token's text; undefined where its bytes are not whole characters. */
  text(token: number): string | undefined {
    if (this.#isKnown[token] === 0) {
      this.#isKnown[token] = 1;
      try {
        this.#texts[token] = this.#decoder.decode(this.bytes(token));
      } catch {
        // A part of a character has no text of its own.
      }
    }
    return this.#texts[token];
  }
}

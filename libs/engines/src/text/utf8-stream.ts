/**
 * Turns the bytes of sampled tokens into text, and holds a character back until its last byte
 * comes. Invalid bytes become U+FFFD as in WHATWG's decoder
 * (https://encoding.spec.whatwg.org/#utf-8-decoder).
 */
export class Utf8Stream {
  // A byte order mark is kept: the model wrote it, and dropping it would make text and tokens differ.
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  /** Whether bytes may be held back since the last that are known to be whole characters. */
  #mayHold = false;

  /** The characters that `bytes` completes; may be empty. */
  push(bytes: Uint8Array): string {
    this.#mayHold = true;
    return this.#decoder.decode(bytes, { stream: true });
  }

  /** The same for bytes that are whole characters: `text`. */
  pushWhole(text: string): string {
    if (!this.#mayHold || text === "") return text;
    // What was held back is the beginning of a character that never arrived.
    return this.flush() + text;
  }

  /** U+FFFD where the text ended inside a character, else nothing; resets the stream. */
  flush(): string {
    if (!this.#mayHold) return "";
    this.#mayHold = false;
    return this.#decoder.decode();
  }
}

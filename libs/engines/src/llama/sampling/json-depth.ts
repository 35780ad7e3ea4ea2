/** Objects and arrays within one another that an answer in JSON may have. */
const MAX_JSON_DEPTH = 256;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/**
 * How deep a JSON text is nested so far. The library's grammars take longer for each token the deeper
 * it is: 70 ms at 16,000 levels, which blocks all other requests. No JSON reader takes such a text.
 */
export class JsonDepth {
  #depth = 0;
  #isInString = false;
  #isEscaped = false;

  /** Whether the text that goes on with these bytes stays within MAX_JSON_DEPTH. */
  allows(bytes: Uint8Array): boolean {
    // At most every byte opens something.
    if (this.#depth + bytes.length <= MAX_JSON_DEPTH) return true;
    const ahead = new JsonDepth();
    ahead.#depth = this.#depth;
    ahead.#isInString = this.#isInString;
    ahead.#isEscaped = this.#isEscaped;
    return bytes.every((byte) => {
      ahead.#push(byte);
      return ahead.#depth <= MAX_JSON_DEPTH;
    });
  }

  /** The text goes on with these bytes. */
  accept(bytes: Uint8Array): void {
    for (const byte of bytes) this.#push(byte);
  }

  #push(byte: number): void {
    if (this.#isEscaped) this.#isEscaped = false;
    else if (this.#isInString && byte === BACKSLASH) this.#isEscaped = true;
    else if (byte === QUOTE) this.#isInString = !this.#isInString;
    else if (this.#isInString) return;
    else if (byte === 0x7b || byte === 0x5b) this.#depth++;
    else if (byte === 0x7d || byte === 0x5d) this.#depth--;
  }
}

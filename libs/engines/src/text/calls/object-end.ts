/** Finds where a JSON object that comes in pieces ends. */
export class ObjectEnd {
  #depth = 0;
  #isInString = false;
  #isEscaped = false;

  /** How much of the text belongs to the object; its end where `isWhole` is true afterwards. */
  take(text: string): { readonly length: number; readonly isWhole: boolean } {
    let length = 0;
    let isWhole = false;
    while (length < text.length && !isWhole) isWhole = this.#isLast(text[length++] as string);
    return { length, isWhole };
  }

  /** Whether the object ends with the character. */
  #isLast(character: string): boolean {
    if (this.#isEscaped) this.#isEscaped = false;
    else if (this.#isInString && character === "\\") this.#isEscaped = true;
    else if (character === '"') this.#isInString = !this.#isInString;
    else if (this.#isInString) return false;
    else if (character === "{" || character === "[") this.#depth++;
    else if (character === "}" || character === "]") return --this.#depth === 0;
    return false;
  }
}

/** The length of the longest beginning of the mark that the text ends with. */
export function beginningOf(mark: string, text: string): number {
  for (let length = Math.min(mark.length - 1, text.length); length > 0; length--) {
    if (text.endsWith(mark.slice(0, length))) return length;
  }
  return 0;
}

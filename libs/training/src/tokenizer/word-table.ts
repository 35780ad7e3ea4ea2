/** Numbers byte strings from 0 in the order of their first appearance. */
export class WordTable {
  /** A word's number plus one, by hash; at most half of the slots are used. */
  #slots = new Int32Array(1024);
  #bytes = new Uint8Array(16_384);
  /** The end of each word among the bytes; it begins where the one before ends. */
  readonly #ends: number[] = [];

  get size(): number {
    return this.#ends.length;
  }

  /** Bytes of all words. */
  get byteLength(): number {
    return this.#ends.at(-1) ?? 0;
  }

  /** The number of the word `text[begin..end)`, which is `size` before the call for a new one. */
  add(text: Uint8Array, begin: number, end: number): number {
    const mask = this.#slots.length - 1;
    for (let slot = hash(text, begin, end) & mask; ; slot = (slot + 1) & mask) {
      const word = (this.#slots[slot] ?? 0) - 1;
      if (word >= 0 && !this.#isAt(word, text, begin, end)) continue;
      if (word >= 0) return word;
      this.#slots[slot] = this.size + 1;
      return this.#append(text, begin, end);
    }
  }

  /** A view of a word's bytes. */
  bytesOf(word: number): Uint8Array {
    return this.#bytes.subarray(this.#beginOf(word), this.#ends[word]);
  }

  #beginOf(word: number): number {
    return word === 0 ? 0 : (this.#ends[word - 1] ?? 0);
  }

  #isAt(word: number, text: Uint8Array, begin: number, end: number): boolean {
    const from = this.#beginOf(word);
    if ((this.#ends[word] ?? 0) - from !== end - begin) return false;
    for (let i = begin; i < end; i++) {
      if (this.#bytes[from + i - begin] !== text[i]) return false;
    }
    return true;
  }

  #append(text: Uint8Array, begin: number, end: number): number {
    const at = this.byteLength;
    const needed = at + end - begin;
    if (needed > this.#bytes.length) {
      const longer = new Uint8Array(Math.max(needed, this.#bytes.length * 2));
      longer.set(this.#bytes.subarray(0, at));
      this.#bytes = longer;
    }
    for (let i = begin; i < end; i++) this.#bytes[at + i - begin] = text[i] ?? 0;
    this.#ends.push(needed);
    if (this.size * 2 > this.#slots.length) this.#widen();
    return this.size - 1;
  }

  #widen(): void {
    this.#slots = new Int32Array(this.#slots.length * 2);
    const mask = this.#slots.length - 1;
    for (let word = 0; word < this.size; word++) {
      let slot = hash(this.#bytes, this.#beginOf(word), this.#ends[word] ?? 0) & mask;
      while (this.#slots[slot] !== 0) slot = (slot + 1) & mask;
      this.#slots[slot] = word + 1;
    }
  }
}

/** FNV-1a, with its high bits mixed into the low ones that are used. */
function hash(text: Uint8Array, begin: number, end: number): number {
  let value = 0x811c9dc5;
  for (let i = begin; i < end; i++) value = Math.imul(value ^ (text[i] ?? 0), 0x01000193);
  return value ^ (value >>> 15);
}

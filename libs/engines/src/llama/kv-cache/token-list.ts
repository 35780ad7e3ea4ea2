/** A growing list of token ids. */
export class TokenList {
  #values: Int32Array;
  #length: number;

  constructor(initial: Int32Array, spare: number) {
    this.#values = new Int32Array(initial.length + spare);
    this.#values.set(initial);
    this.#length = initial.length;
  }

  get length(): number {
    return this.#length;
  }

  /** The memory; only the first `length` entries mean anything. */
  get values(): Int32Array {
    return this.#values;
  }

  /** Takes `count` tokens away from `begin` on; memory that others have got stays as it is. */
  remove(begin: number, count: number): void {
    const values = this.#values.slice();
    values.copyWithin(begin, begin + count, this.#length);
    this.#values = values;
    this.#length -= count;
  }

  push(token: number): void {
    if (this.#length === this.#values.length) {
      const larger = new Int32Array(this.#length * 2 + 16);
      larger.set(this.#values);
      this.#values = larger;
    }
    this.#values[this.#length++] = token;
  }
}

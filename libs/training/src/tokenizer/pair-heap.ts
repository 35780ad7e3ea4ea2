/**
 * A binary heap of pairs of numbers: the least `first` is popped before others, then the least
 * `second`.
 */
export class PairHeap {
  readonly #firsts: number[] = [];
  readonly #seconds: number[] = [];

  push(first: number, second: number): void {
    let at = this.#firsts.length;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!this.#isBefore(first, second, parent)) break;
      this.#move(parent, at);
      at = parent;
    }
    this.#firsts[at] = first;
    this.#seconds[at] = second;
  }

  /** Undefined where it is empty. */
  pop(): { readonly first: number; readonly second: number } | undefined {
    const [first, second] = [this.#firsts[0], this.#seconds[0]];
    const [lastFirst, lastSecond] = [this.#firsts.pop(), this.#seconds.pop()];
    if (first === undefined || second === undefined) return undefined;
    if (this.#firsts.length > 0) this.#sink(lastFirst ?? 0, lastSecond ?? 0);
    return { first, second };
  }

  /** Replaces the top by a pair. */
  #sink(first: number, second: number): void {
    const { length } = this.#firsts;
    let at = 0;
    for (let child = 1; child < length; child = 2 * at + 1) {
      const right = child + 1;
      const isRight =
        right < length &&
        this.#isBefore(this.#firsts[right] ?? 0, this.#seconds[right] ?? 0, child);
      const least = isRight ? right : child;
      if (this.#isBefore(first, second, least)) break;
      this.#move(least, at);
      at = least;
    }
    this.#firsts[at] = first;
    this.#seconds[at] = second;
  }

  #isBefore(first: number, second: number, at: number): boolean {
    const other = this.#firsts[at] ?? 0;
    return first < other || (first === other && second < (this.#seconds[at] ?? 0));
  }

  #move(from: number, to: number): void {
    this.#firsts[to] = this.#firsts[from] ?? 0;
    this.#seconds[to] = this.#seconds[from] ?? 0;
  }
}

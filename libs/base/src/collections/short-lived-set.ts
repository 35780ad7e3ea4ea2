/** A member and where it is. */
interface Place<T> {
  readonly member: T;
  index: number;
}

/**
 * Members that come and go all the time, in no order. A busy `Set` keeps removed members until the
 * next major garbage collection, since V8 links its former tables.
 */
export class ShortLivedSet<T> implements Iterable<T> {
  readonly #places: Place<T>[] = [];

  get size(): number {
    return this.#places.length;
  }

  /** Returns what removes the member; a second call does nothing. */
  add(member: T): () => void {
    const place = { member, index: this.#places.length };
    this.#places.push(place);
    return () => this.#remove(place);
  }

  #remove(place: Place<T>): void {
    const { index } = place;
    if (this.#places[index] !== place) return;
    const last = this.#places.pop()!;
    if (last === place) return;
    this.#places[index] = last;
    last.index = index;
  }

  /** Members that are added or removed meanwhile may be left out. */
  *[Symbol.iterator](): Iterator<T> {
    for (const { member } of this.#places) yield member;
  }
}

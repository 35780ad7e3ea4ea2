/** What the queue orders by. */
interface QueuedItem {
  readonly fairKey: string;
  /** Higher goes first. */
  readonly priority: number;
}

/**
 * Waiting work, ordered by priority, least served key, the caller's turns of a key's items,
 * arrival. Service is counted in tokens, as in the virtual token counter (Sheng et al., "Fairness
 * in Serving Large Language Models", 2024). An idle key restarts level with the least served active
 * one.
 */
export class SequenceQueue<Item extends QueuedItem> {
  #items: Item[] = [];
  readonly #served = new Map<string, number>();
  /** Items waiting or running per key; a key is forgotten when none is left. */
  readonly #active = new Map<string, number>();

  /** Items that wait. */
  get size(): number {
    return this.#items.length;
  }

  /** Starts counting the key's service; `leave` must follow when the item ends. */
  push(item: Item): void {
    const active = this.#active.get(item.fairKey) ?? 0;
    if (active === 0) this.#served.set(item.fairKey, this.#leastServed());
    this.#active.set(item.fairKey, active + 1);
    this.#items.push(item);
  }

  /** Puts back an item that was taken and must run again, before those that came later. */
  pushFront(item: Item): void {
    this.#items.unshift(item);
  }

  /** The waiting items, in the order of their arrival; those that were put back are first. */
  get items(): readonly Item[] {
    return this.#items;
  }

  /**
   * The waiting items, the one to run next first; of a key's items those of lower turns.
   * `priorityOf` may raise what has waited long.
   */
  ordered(
    turnOf: (item: Item) => number,
    priorityOf: (item: Item) => number = ({ priority }) => priority,
  ): Item[] {
    return this.#items.toSorted(
      (a, b) =>
        priorityOf(b) - priorityOf(a) ||
        this.servedOf(a.fairKey) - this.servedOf(b.fairKey) ||
        turnOf(a) - turnOf(b),
    );
  }

  /** Takes a waiting item out, to run or because it ended; unknown ones are ignored. */
  remove(item: Item): void {
    const at = this.#items.indexOf(item);
    if (at >= 0) this.#items.splice(at, 1);
  }

  /** Counts tokens that were processed for a key. */
  charge(fairKey: string, tokens: number): void {
    this.#served.set(fairKey, this.servedOf(fairKey) + tokens);
  }

  /** An item of the key ended. */
  leave(fairKey: string): void {
    const active = (this.#active.get(fairKey) ?? 0) - 1;
    if (active > 0) {
      this.#active.set(fairKey, active);
      return;
    }
    this.#active.delete(fairKey);
    this.#served.delete(fairKey);
  }

  /** Tokens that count for a key by now. */
  servedOf(fairKey: string): number {
    return this.#served.get(fairKey) ?? 0;
  }

  #leastServed(): number {
    let least = Number.POSITIVE_INFINITY;
    for (const served of this.#served.values()) least = Math.min(least, served);
    return Number.isFinite(least) ? least : 0;
  }
}

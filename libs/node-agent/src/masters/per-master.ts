import type { KnownMasters } from "./known-masters.ts";

/** One resource for each known master: opened when the master becomes known, closed when it is removed. */
export class PerMaster<T extends { close(): Promise<void> }> implements Iterable<T> {
  readonly #masters: Pick<KnownMasters, "addresses" | "onChange">;
  readonly #open: (master: string) => T;
  readonly #each = new Map<string, T>();
  #isClosed = false;

  constructor(masters: Pick<KnownMasters, "addresses" | "onChange">, open: (master: string) => T) {
    this.#masters = masters;
    this.#open = open;
    masters.onChange(() => this.#follow());
    this.#follow();
  }

  [Symbol.iterator](): Iterator<T> {
    return this.#each.values();
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all([...this].map((each) => each.close()));
  }

  #follow(): void {
    if (this.#isClosed) return;
    const { addresses } = this.#masters;
    for (const [master, each] of this.#each) {
      if (addresses.includes(master)) continue;
      this.#each.delete(master);
      void each.close();
    }
    for (const master of addresses) {
      if (!this.#each.has(master)) this.#each.set(master, this.#open(master));
    }
  }
}

/** The last entries of a log, so that readers at its end need no disk. */
export class RecentEntries {
  readonly #maxBytes: number;
  #entries: Uint8Array[] = [];
  #first: number;
  #bytes = 0;

  constructor(first: number, maxBytes: number) {
    this.#first = first;
    this.#maxBytes = maxBytes;
  }

  add(entries: readonly Uint8Array[]): void {
    for (const entry of entries) {
      this.#entries.push(entry);
      this.#bytes += entry.byteLength;
    }
    if (this.#bytes <= this.#maxBytes) return;
    let dropped = 0;
    // Half of them at a time, so that few calls move the others.
    while (this.#bytes > this.#maxBytes / 2 && dropped < this.#entries.length) {
      this.#bytes -= (this.#entries[dropped++] as Uint8Array).byteLength;
    }
    this.#entries = this.#entries.slice(dropped);
    this.#first += dropped;
  }

  /** Undefined where the entry is not here. */
  from(sequence: number, limit: number): Uint8Array[] | undefined {
    const at = sequence - this.#first;
    if (at < 0 || at >= this.#entries.length) return undefined;
    return this.#entries.slice(at, at + limit);
  }
}

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

  /** At least one entry, within the bounds; undefined where it is not here. */
  from(sequence: number, limit: number, maxBytes: number): Uint8Array[] | undefined {
    const start = sequence - this.#first;
    if (start < 0 || start >= this.#entries.length) return undefined;
    let bytes = 0;
    let end = start;
    while (end < this.#entries.length && end - start < limit) {
      bytes += (this.#entries[end] as Uint8Array).byteLength;
      if (bytes > maxBytes && end > start) break;
      end++;
    }
    return this.#entries.slice(start, end);
  }
}

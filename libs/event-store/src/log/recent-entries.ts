/** The size of the buffers that entries are copied into; a retained entry retains one of them. */
const PIECE_BYTES = 64 * 1024;

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
    for (let at = 0; at < entries.length; ) {
      const copies = copyPiece(entries, at);
      at += copies.length;
      for (const copy of copies) this.#bytes += copy.byteLength;
      this.#entries.push(...copies);
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

/**
 * Copies as many entries as fit into one buffer, at least one. The caller's entries are views of pooled
 * buffers, which would stay in memory with them.
 */
function copyPiece(entries: readonly Uint8Array[], from: number): Uint8Array[] {
  let bytes = (entries[from] as Uint8Array).byteLength;
  let end = from + 1;
  for (; end < entries.length; end++) {
    const length = (entries[end] as Uint8Array).byteLength;
    if (bytes + length > PIECE_BYTES) break;
    bytes += length;
  }
  const piece = Buffer.allocUnsafeSlow(bytes);
  let at = 0;
  return entries.slice(from, end).map((entry) => {
    piece.set(entry, at);
    at += entry.byteLength;
    return piece.subarray(at - entry.byteLength, at);
  });
}

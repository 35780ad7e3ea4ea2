import { WAL_KINDS, type WalRecord } from "@heddle/storage/wal-record";

/** Entries whose positions are one number; a reader reads at least that many. */
const RUN_ENTRIES = 16;
const OFFSET_BYTES = 8;

/** A part of a segment's file with whole entries. */
export interface EntrySpan {
  /** The first entry, counted from the segment's own first one. */
  readonly first: number;
  readonly start: number;
  readonly end: number;
}

/** Where the entries of a segment are in its file. */
export class EntryOffsets {
  /** The offset of the first entry of each run. */
  readonly #offsets: number[];
  #count: number;
  #end: number;

  constructor(start: number, offsets: number[] = [], count = 0) {
    this.#offsets = offsets;
    this.#count = count;
    this.#end = start;
  }

  static sealBytes(entries: number): number {
    return (entries / RUN_ENTRIES + 1) * OFFSET_BYTES;
  }

  /** Undefined where the record is no seal of a segment of that many entries. */
  static fromSeal({ kind, payload }: WalRecord, entries: number): EntryOffsets | undefined {
    const isSeal = kind === WAL_KINDS.snapshot;
    if (!isSeal || payload.byteLength !== EntryOffsets.sealBytes(entries)) return undefined;
    const values = Buffer.from(payload);
    const at = (index: number) => values.readDoubleLE(index * OFFSET_BYTES);
    const runs = entries / RUN_ENTRIES;
    const offsets = Array.from({ length: runs }, (_, index) => at(index));
    return new EntryOffsets(at(runs), offsets, entries);
  }

  get count(): number {
    return this.#count;
  }

  add(offset: number, stride: number): void {
    if (this.#count % RUN_ENTRIES === 0) this.#offsets.push(offset);
    this.#count++;
    this.#end = offset + stride;
  }

  /** The runs from the entry on: up to `limit` entries and `maxBytes`, but at least its own run. */
  span(entry: number, limit: number, maxBytes: number): EntrySpan {
    const run = Math.floor(entry / RUN_ENTRIES);
    const start = this.#start(run);
    let next = run + 1;
    while (next * RUN_ENTRIES < entry + limit && next < this.#offsets.length) {
      if (this.#start(next + 1) - start > maxBytes) break;
      next++;
    }
    return { first: run * RUN_ENTRIES, start, end: this.#start(next) };
  }

  /** The last record of a full segment, by which its entries are found without reading all of it. */
  seal(): WalRecord {
    const payload = Buffer.alloc((this.#offsets.length + 1) * OFFSET_BYTES);
    for (const [at, offset] of [...this.#offsets, this.#end].entries()) {
      payload.writeDoubleLE(offset, at * OFFSET_BYTES);
    }
    return { kind: WAL_KINDS.snapshot, term: 0, index: this.#count, payload };
  }

  #start(run: number): number {
    return this.#offsets[run] ?? this.#end;
  }
}

import { decodeWalRecord, WAL_KINDS } from "@heddle/storage/wal-record";

/** A log as indexes and terms, for the checker; terms[index] is undefined where unknown. */
export class ShadowLog {
  terms: (number | undefined)[] = [0];
  snapshotIndex = 0;
  /** The first entry: earlier ones were released with their segments. */
  #first = Number.POSITIVE_INFINITY;

  get lastIndex(): number {
    return this.terms.length - 1;
  }

  append(index: number, term: number): void {
    this.terms.length = Math.min(this.terms.length, index);
    this.terms[index] = term;
    this.#first = Math.min(this.#first, index);
  }

  /** A snapshot beyond the end of the log replaces it. */
  takeSnapshot(index: number, term: number): void {
    const isBeforeAll = index < this.#first && this.#first !== Number.POSITIVE_INFINITY;
    if (!isBeforeAll && this.terms[index] !== term) {
      this.terms.length = 0;
      this.terms[index] = term;
      this.#first = Number.POSITIVE_INFINITY;
    }
    this.snapshotIndex = Math.max(this.snapshotIndex, index);
  }

  holds(index: number, term: number): boolean {
    return this.snapshotIndex >= index || this.terms[index] === term;
  }

  copy(): ShadowLog {
    const copy = new ShadowLog();
    copy.terms = this.terms.slice();
    copy.snapshotIndex = this.snapshotIndex;
    copy.#first = this.#first;
    return copy;
  }
}

/** An entry of the log. */
export interface ShadowEntry {
  readonly index: number;
  readonly term: number;
  readonly payload: Uint8Array;
  /** The term of the previous entry, where that is known. */
  readonly previousTerm: number | undefined;
}

/** The durable state of a member, read from the bytes that are certainly on its disk. */
export class DurableShadow {
  log = new ShadowLog();
  term = 0;
  vote = 0;

  /** Reads a group of records that is on the disk. */
  take(bytes: Uint8Array, onEntry?: (entry: ShadowEntry) => void): void {
    const view = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    for (let offset = 0; offset + 32 <= view.length; ) {
      const length = view.readUInt32LE(offset + 8);
      const payload = view.subarray(offset + 32, offset + 32 + length);
      const kind = view[offset + 12] as number;
      this.#takeRecord(kind, view.readUInt32LE(offset + 20), view.readDoubleLE(offset + 24), {
        payload,
        onEntry,
      });
      offset += (32 + length + 7) & ~7;
    }
  }

  #takeRecord(
    kind: number,
    term: number,
    index: number,
    rest: { payload: Buffer; onEntry: ((entry: ShadowEntry) => void) | undefined },
  ): void {
    if (kind === WAL_KINDS.state) {
      this.term = term;
      this.vote = rest.payload.readDoubleLE(0);
    } else if (kind === WAL_KINDS.snapshot) {
      this.log.takeSnapshot(index, term);
    } else if (kind === WAL_KINDS.entries) {
      for (const entry of entriesOfRun(rest.payload)) this.#takeEntry(entry, rest.onEntry);
    } else if (kind === WAL_KINDS.entry) {
      this.#takeEntry({ index, term, payload: rest.payload }, rest.onEntry);
    }
  }

  #takeEntry(
    { index, term, payload }: Omit<ShadowEntry, "previousTerm">,
    onEntry: ((entry: ShadowEntry) => void) | undefined,
  ): void {
    const previousTerm = this.log.terms[index - 1];
    this.log.append(index, term);
    onEntry?.({ index, term, payload, previousTerm });
  }

  /** What a restarted member must find: the whole groups of its segments, in order. */
  static ofSegments(segments: readonly Buffer[]): DurableShadow {
    const shadow = new DurableShadow();
    let lastGroupCrc: number | undefined;
    for (const bytes of segments) {
      let groupStart = 0;
      let previousCrc = lastGroupCrc;
      for (let offset = 0; ; ) {
        const record = decodeWalRecord(bytes, offset);
        // After the last group there may be records of the file's use as an earlier segment.
        if (!record || (previousCrc !== undefined && record.previousCrc !== previousCrc)) break;
        previousCrc = record.crc;
        offset += record.stride;
        if (!record.endsGroup) continue;
        shadow.take(bytes.subarray(groupStart, offset));
        groupStart = offset;
        lastGroupCrc = previousCrc;
      }
    }
    return shadow;
  }
}

/** The lowest index of an entry, or of a snapshot, that a torn write may have changed. */
export function lowestTouched(torn: readonly Uint8Array[]): number {
  let lowest = Number.POSITIVE_INFINITY;
  for (const bytes of torn) {
    const view = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    for (let offset = 0; offset + 32 <= view.length; ) {
      const kind = view[offset + 12];
      const index = view.readDoubleLE(offset + 24);
      if (kind === WAL_KINDS.entry) lowest = Math.min(lowest, index);
      if (kind === WAL_KINDS.snapshot) lowest = 0;
      const end = offset + 32 + view.readUInt32LE(offset + 8);
      if (kind === WAL_KINDS.entries) {
        const run = entriesOfRun(view.subarray(offset + 32, end));
        lowest = Math.min(lowest, ...run.map((entry) => entry.index));
      }
      offset += (32 + view.readUInt32LE(offset + 8) + 7) & ~7;
    }
  }
  return lowest;
}

/**
 * The entries of a record with several, decoded from the format and not with the log's own code.
 */
function entriesOfRun(payload: Buffer): Omit<ShadowEntry, "previousTerm">[] {
  const entries: Omit<ShadowEntry, "previousTerm">[] = [];
  for (let at = 0; at < payload.length; ) {
    const end = at + 16 + payload.readUInt32LE(at);
    const term = payload.readUInt32LE(at + 4);
    const index = payload.readDoubleLE(at + 8);
    entries.push({ term, index, payload: payload.subarray(at + 16, end) });
    at = (end + 7) & ~7;
  }
  return entries;
}

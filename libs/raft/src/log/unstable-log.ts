import type { Snapshot } from "../core/state.ts";
import type { TraceSink } from "../core/trace.ts";
import { invariant } from "../invariant.ts";
import type { Entry, EntryId } from "./entry.ts";

/**
 * The tail of the log that is not known to be durable: entries and at most one snapshot, pending or
 * being written. Its entries shadow those in storage with the same or a higher index, which the
 * next write replaces.
 */
export class UnstableLog {
  readonly #trace: TraceSink | undefined;
  #snapshot: Snapshot | undefined;
  /** #entries[i] has index #offset + i. */
  #entries: Entry[] = [];
  #offset: number;
  /** True once the driver has the snapshot for writing. */
  #snapshotInProgress = false;
  /**
   * The driver has the entries below for writing; #offset <= #inProgressEnd <= #offset + length.
   */
  #inProgressEnd: number;

  constructor(offset: number, trace: TraceSink | undefined) {
    this.#offset = offset;
    this.#inProgressEnd = offset;
    this.#trace = trace;
  }

  /** The index of the first entry here, or of the next one if there is none. */
  get offset(): number {
    return this.#offset;
  }

  get inProgressEnd(): number {
    return this.#inProgressEnd;
  }

  get length(): number {
    return this.#entries.length;
  }

  get snapshot(): Snapshot | undefined {
    return this.#snapshot;
  }

  /** The last index of entries or snapshot, if there is either. */
  get lastIndex(): number | undefined {
    if (this.#entries.length > 0) return this.#offset + this.#entries.length - 1;
    return this.#snapshot?.index;
  }

  /** The term at an index, if the index is here. */
  term(index: number): number | undefined {
    if (index >= this.#offset) return this.#entries[index - this.#offset]?.term;
    return this.#snapshot?.index === index ? this.#snapshot.term : undefined;
  }

  /** The entries that the driver does not have yet. */
  nextEntries(): readonly Entry[] {
    const handedOver = this.#inProgressEnd - this.#offset;
    if (handedOver === this.#entries.length) return [];
    return this.#entries.slice(handedOver);
  }

  get hasNextEntries(): boolean {
    return this.#inProgressEnd - this.#offset < this.#entries.length;
  }

  /** The snapshot if the driver does not have it yet. */
  nextSnapshot(): Snapshot | undefined {
    return this.#snapshotInProgress ? undefined : this.#snapshot;
  }

  /** Marks all entries and the snapshot as in progress. */
  acceptInProgress(): void {
    this.#inProgressEnd = this.#offset + this.#entries.length;
    if (this.#snapshot) this.#snapshotInProgress = true;
  }

  /**
   * Records that the log is durable up to an entry, and drops those entries. An id that does not
   * match is ignored; the call is valid only if no write in progress can still replace the entries.
   */
  stableTo(id: EntryId): void {
    const term = this.term(id.index);
    if (term === undefined) {
      this.#trace?.({ kind: "stableEntryMissing", index: id.index });
      return;
    }
    if (id.index < this.#offset) {
      this.#trace?.({ kind: "stableEntryIsSnapshot", index: id.index });
      return;
    }
    if (term !== id.term) {
      this.#trace?.({ kind: "stableEntryMismatch", id, unstableTerm: term });
      return;
    }
    this.#entries = this.#entries.slice(id.index + 1 - this.#offset);
    this.#offset = id.index + 1;
    this.#inProgressEnd = Math.max(this.#inProgressEnd, this.#offset);
  }

  stableSnapshotTo(index: number): void {
    if (this.#snapshot?.index !== index) return;
    this.#snapshot = undefined;
    this.#snapshotInProgress = false;
  }

  restore(snapshot: Snapshot): void {
    this.#offset = snapshot.index + 1;
    this.#inProgressEnd = this.#offset;
    this.#entries = [];
    this.#snapshot = snapshot;
    this.#snapshotInProgress = false;
  }

  /** Appends entries, which replace those at and after the first of them. */
  truncateAndAppend(entries: readonly Entry[]): void {
    const from = (entries[0] as Entry).index;
    if (from === this.#offset + this.#entries.length) {
      for (const entry of entries) this.#entries.push(entry);
      return;
    }
    if (from <= this.#offset) {
      this.#trace?.({ kind: "unstableReplaced", index: from });
      this.#entries = [...entries];
      this.#offset = from;
      this.#inProgressEnd = from;
      return;
    }
    this.#trace?.({ kind: "unstableTruncated", index: from });
    this.#entries = [...this.slice(this.#offset, from), ...entries];
    this.#inProgressEnd = Math.min(this.#inProgressEnd, from);
  }

  /** The entries [from, until), all of which must be here. */
  slice(from: number, until: number): Entry[] {
    const end = this.#offset + this.#entries.length;
    invariant(
      this.#offset <= from && from <= until && until <= end,
      () => `entries [${from},${until}) are not in the unstable log [${this.#offset},${end})`,
    );
    return this.#entries.slice(from - this.#offset, until - this.#offset);
  }
}

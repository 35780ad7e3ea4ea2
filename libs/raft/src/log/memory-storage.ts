import {
  type ConfState,
  EMPTY_CONF_STATE,
  EMPTY_HARD_STATE,
  type HardState,
  type Snapshot,
} from "../core/state.ts";
import { invariant } from "../invariant.ts";
import { type Entry, entryBytes } from "./entry.ts";
import type { Missing, Storage } from "./storage.ts";

/** A Storage in plain arrays, for tests, and for a driver that mirrors its log in memory. */
export class MemoryStorage implements Storage {
  #hardState: HardState = EMPTY_HARD_STATE;
  #snapshot: Snapshot = {
    index: 0,
    term: 0,
    confState: EMPTY_CONF_STATE,
    data: new Uint8Array(0),
  };
  /** The index and term just before the first entry. */
  #before = { index: 0, term: 0 };
  /** #entries[i] has index #before.index + 1 + i. */
  #entries: Entry[] = [];

  initialState(): { hardState: HardState; confState: ConfState } {
    return { hardState: this.#hardState, confState: this.#snapshot.confState };
  }

  entries(from: number, until: number, maxBytes: number): readonly Entry[] | Missing {
    const first = this.firstIndex();
    if (from < first) return "compacted";
    if (until > this.lastIndex() + 1) return "unavailable";
    const start = from - first;
    let end = start;
    // Counted before they are copied, so the cost is that of the entries that fit.
    for (let bytes = 0; end < until - first; end++) {
      bytes += entryBytes(this.#entries[end] as Entry);
      if (end > start && bytes > maxBytes) break;
    }
    return this.#entries.slice(start, end);
  }

  term(index: number): number | Missing {
    if (index < this.#before.index) return "compacted";
    if (index === this.#before.index) return this.#before.term;
    return this.#entries[index - this.firstIndex()]?.term ?? "unavailable";
  }

  firstIndex(): number {
    return this.#before.index + 1;
  }

  lastIndex(): number {
    return this.#before.index + this.#entries.length;
  }

  snapshot(): Snapshot {
    return this.#snapshot;
  }

  setHardState(state: HardState): void {
    this.#hardState = state;
  }

  /** Replaces the log with a snapshot; false if the current snapshot is as new. */
  applySnapshot(snapshot: Snapshot): boolean {
    if (this.#snapshot.index !== 0 && this.#snapshot.index >= snapshot.index) return false;
    this.#snapshot = snapshot;
    this.#before = { index: snapshot.index, term: snapshot.term };
    this.#entries = [];
    return true;
  }

  /** Stores a snapshot of the state at an index, and keeps the log; false if it is not newer. */
  createSnapshot(index: number, confState: ConfState, data: Uint8Array): boolean {
    if (index <= this.#snapshot.index) return false;
    const term = this.term(index);
    invariant(typeof term === "number", () => `no entry ${index} to take a snapshot at`);
    this.#snapshot = { index, term, confState, data };
    return true;
  }

  /** Drops the entries up to the index; false if they are already dropped. */
  compact(index: number): boolean {
    if (index <= this.#before.index) return false;
    const term = this.term(index);
    invariant(typeof term === "number", () => `no entry ${index} to compact at`);
    this.#entries = this.#entries.slice(index - this.#before.index);
    this.#before = { index, term };
    return true;
  }

  /** The first of the newest entries in `from..last` that have at most `maxBytes` in all. */
  newestWithin(from: number, last: number, maxBytes: number): number {
    let first = last + 1;
    for (let bytes = 0; first > from; first--) {
      bytes += entryBytes(this.#entries[first - 1 - this.firstIndex()] as Entry);
      if (bytes > maxBytes) break;
    }
    return first;
  }

  /** Writes entries, which replace those stored at and after the first of them. */
  append(entries: readonly Entry[]): void {
    const first = this.firstIndex();
    const kept = entries.filter((entry) => entry.index >= first);
    const start = kept[0];
    if (!start) return;
    const position = start.index - first;
    invariant(
      position <= this.#entries.length,
      () => `append at ${start.index} leaves a gap after ${this.lastIndex()}`,
    );
    this.#entries.length = position;
    for (const entry of kept) this.#entries.push(entry);
  }
}

import type { Snapshot } from "../core/state.ts";
import type { TraceSink } from "../core/trace.ts";
import { invariant } from "../invariant.ts";
import { type Entry, type EntryId, entriesBytes, limitEntries } from "./entry.ts";
import type { Missing, Storage } from "./storage.ts";
import { UnstableLog } from "./unstable-log.ts";

/** The entries that a leader sends, and the entry that they follow. */
interface LogSlice {
  readonly previous: EntryId;
  readonly entries: readonly Entry[];
}

/**
 * The whole log of a node: the unstable tail on top of storage, and its commit and apply indexes.
 */
export class RaftLog {
  readonly #storage: Storage;
  readonly #unstable: UnstableLog;
  readonly #maxApplyingBytes: number;
  readonly #trace: TraceSink | undefined;
  /** The highest index known to be durable on a quorum; never decreases. */
  #committed: number;
  /** The highest index passed to the application; applied <= applying <= committed. */
  #applying: number;
  /** The highest index whose application was acknowledged; never decreases. */
  #applied: number;
  /** The bytes of the entries in (applied, applying]; may exceed the limit by one entry. */
  #applyingBytes = 0;
  /** True while the limit on applying bytes holds back more entries. */
  #applyingPaused = false;

  constructor(storage: Storage, maxApplyingBytes: number, trace: TraceSink | undefined) {
    this.#storage = storage;
    this.#unstable = new UnstableLog(storage.lastIndex() + 1, trace);
    this.#maxApplyingBytes = maxApplyingBytes;
    this.#trace = trace;
    const snapshotIndex = storage.firstIndex() - 1;
    this.#committed = snapshotIndex;
    this.#applying = snapshotIndex;
    this.#applied = snapshotIndex;
  }

  get committed(): number {
    return this.#committed;
  }

  get applying(): number {
    return this.#applying;
  }

  get applied(): number {
    return this.#applied;
  }

  get unstable(): Pick<UnstableLog, "offset" | "inProgressEnd" | "length"> {
    return this.#unstable;
  }

  get firstIndex(): number {
    const snapshot = this.#unstable.snapshot;
    return snapshot ? snapshot.index + 1 : this.#storage.firstIndex();
  }

  get lastIndex(): number {
    return this.#unstable.lastIndex ?? this.#storage.lastIndex();
  }

  get lastId(): EntryId {
    const index = this.lastIndex;
    const term = this.term(index);
    invariant(typeof term === "number", () => `the term of the last entry ${index} is ${term}`);
    return { term, index };
  }

  /** The term of an entry, known from firstIndex - 1 to lastIndex. */
  term(index: number): number | Missing {
    const unstable = this.#unstable.term(index);
    if (unstable !== undefined) return unstable;
    if (index + 1 < this.firstIndex) return "compacted";
    if (index > this.lastIndex) return "unavailable";
    return this.#storage.term(index);
  }

  /** The term of an entry, or 0 where it is not known; no entry has term 0. */
  termOrZero(index: number): number {
    const term = this.term(index);
    return typeof term === "number" ? term : 0;
  }

  matches(id: EntryId): boolean {
    return this.term(id.index) === id.term;
  }

  /** True if a log that ends with this entry is at least as complete as ours (Raft, 5.4.1). */
  isUpToDate(last: EntryId): boolean {
    const ours = this.lastId;
    return last.term > ours.term || (last.term === ours.term && last.index >= ours.index);
  }

  /**
   * Appends entries of the leader, and adopts its commit index up to the last entry known to match.
   * Returns that entry's index, or undefined if `previous` does not match.
   */
  maybeAppend(slice: LogSlice, leaderCommit: number): number | undefined {
    if (!this.matches(slice.previous)) return undefined;
    const last = slice.previous.index + slice.entries.length;
    const conflict = this.#findConflict(slice.entries);
    if (conflict !== undefined) {
      invariant(
        conflict > this.#committed,
        () => `entry ${conflict} conflicts with the log, which is committed to ${this.#committed}`,
      );
      this.append(slice.entries.slice(conflict - (slice.previous.index + 1)));
    }
    this.commitTo(Math.min(leaderCommit, last));
    return last;
  }

  /**
   * Appends entries, which replace those at and after the first of them; returns the last index.
   */
  append(entries: readonly Entry[]): number {
    const first = entries[0];
    if (first) {
      invariant(
        first.index > this.#committed,
        () => `append at ${first.index} would replace entries committed to ${this.#committed}`,
      );
      this.#unstable.truncateAndAppend(entries);
    }
    return this.lastIndex;
  }

  /** The index of the first entry that this log lacks or has with another term. */
  #findConflict(entries: readonly Entry[]): number | undefined {
    for (const entry of entries) {
      if (this.matches(entry)) continue;
      if (entry.index <= this.lastIndex) {
        this.#trace?.({
          kind: "conflict",
          index: entry.index,
          existingTerm: this.termOrZero(entry.index),
          conflictingTerm: entry.term,
        });
      }
      return entry.index;
    }
    return undefined;
  }

  /**
   * The best guess of where this log and another diverge, given one entry of the other. It is the
   * largest index up to `index` whose term here is at most `term`; an unknown term counts as 0, a
   * possible match.
   */
  findConflictByTerm(index: number, term: number): EntryId {
    for (let guess = index; guess > 0; guess--) {
      const ours = this.term(guess);
      if (typeof ours !== "number") return { index: guess, term: 0 };
      if (ours <= term) return { index: guess, term: ours };
    }
    return { index: 0, term: 0 };
  }

  /** Raises the commit index; never lowers it. */
  commitTo(index: number): void {
    if (index <= this.#committed) return;
    invariant(
      index <= this.lastIndex,
      () =>
        `commit ${index} is beyond the last index ${this.lastIndex}; was the log lost or truncated?`,
    );
    this.#committed = index;
  }

  /** Commits up to an entry if it is new and of the given term (Raft, 5.4.2); true if it did. */
  maybeCommit(id: EntryId): boolean {
    if (id.term === 0 || id.index <= this.#committed || !this.matches(id)) return false;
    this.commitTo(id.index);
    return true;
  }

  restore(snapshot: Snapshot): void {
    this.#trace?.({ kind: "logRestore", log: this, index: snapshot.index, term: snapshot.term });
    this.#committed = snapshot.index;
    this.#unstable.restore(snapshot);
  }

  /** The entries for the next write of the driver. */
  nextUnstableEntries(): readonly Entry[] {
    return this.#unstable.nextEntries();
  }

  get hasNextUnstableEntries(): boolean {
    return this.#unstable.hasNextEntries;
  }

  get hasUnstableEntries(): boolean {
    return this.#unstable.length > 0;
  }

  nextUnstableSnapshot(): Snapshot | undefined {
    return this.#unstable.nextSnapshot();
  }

  get hasUnstableSnapshot(): boolean {
    return this.#unstable.snapshot !== undefined;
  }

  acceptUnstable(): void {
    this.#unstable.acceptInProgress();
  }

  stableTo(id: EntryId): void {
    this.#unstable.stableTo(id);
  }

  stableSnapshotTo(index: number): void {
    this.#unstable.stableSnapshotTo(index);
  }

  /** The highest index that may be applied: committed, and durable here unless `allowUnstable`. */
  #appliable(allowUnstable: boolean): number {
    return allowUnstable ? this.#committed : Math.min(this.#committed, this.#unstable.offset - 1);
  }

  hasNextCommittedEntries(allowUnstable: boolean): boolean {
    // A snapshot is applied before any entry, so that the order of application is unambiguous.
    if (this.#applyingPaused || this.hasUnstableSnapshot) return false;
    return this.#applying < this.#appliable(allowUnstable);
  }

  /** The next entries to apply, within the remaining budget of applying bytes. */
  nextCommittedEntries(allowUnstable: boolean): readonly Entry[] {
    if (!this.hasNextCommittedEntries(allowUnstable)) return [];
    const maxBytes = this.#maxApplyingBytes - this.#applyingBytes;
    const entries = this.slice(this.#applying + 1, this.#appliable(allowUnstable) + 1, maxBytes);
    invariant(typeof entries !== "string", () => `entry ${this.#applying + 1} is ${entries}`);
    return entries;
  }

  /** Records that entries up to an index, of `bytes` bytes, were passed to the application. */
  acceptApplying(index: number, bytes: number, allowUnstable: boolean): void {
    invariant(index <= this.#committed, () => `applying ${index} is not committed`);
    this.#applying = index;
    this.#applyingBytes += bytes;
    // Fewer entries than available mean that the next one would exceed the limit.
    this.#applyingPaused =
      this.#applyingBytes >= this.#maxApplyingBytes || index < this.#appliable(allowUnstable);
  }

  /** Records that entries up to an index, of `bytes` bytes, were applied. */
  appliedTo(index: number, bytes: number): void {
    invariant(
      this.#applied <= index && index <= this.#committed,
      () => `applied ${index} is not within [${this.#applied}, ${this.#committed}]`,
    );
    this.#applied = index;
    this.#applying = Math.max(this.#applying, index);
    this.#applyingBytes = Math.max(0, this.#applyingBytes - bytes);
    this.#applyingPaused = this.#applyingBytes >= this.#maxApplyingBytes;
  }

  /** A snapshot to send to a peer, or undefined while storage has none. */
  snapshot(): Snapshot | undefined {
    return this.#unstable.snapshot ?? this.#storage.snapshot();
  }

  /** The entries from an index on, at least one if there is any. */
  entriesFrom(index: number, maxBytes: number): readonly Entry[] | Missing {
    if (index > this.lastIndex) return [];
    return this.slice(index, this.lastIndex + 1, maxBytes);
  }

  /** The entries [from, until), cut to the limit but at least one. */
  slice(from: number, until: number, maxBytes: number): readonly Entry[] | "compacted" {
    invariant(
      from <= until && until <= this.lastIndex + 1,
      () => `entries [${from},${until}) are beyond the last index ${this.lastIndex}`,
    );
    if (from < this.firstIndex) return "compacted";
    if (from === until) return [];
    const offset = this.#unstable.offset;
    if (from >= offset) return limitEntries(this.#unstable.slice(from, until), maxBytes);
    const cut = Math.min(until, offset);
    const stored = this.#storage.entries(from, cut, maxBytes);
    if (stored === "compacted") return stored;
    invariant(stored !== "unavailable", () => `entries [${from},${cut}) are not in storage`);
    if (until <= offset || stored.length < cut - from) return stored;
    return this.#extend(stored, until, maxBytes);
  }

  /** Stored entries and what fits of the unstable ones that follow them. */
  #extend(stored: readonly Entry[], until: number, maxBytes: number): readonly Entry[] {
    const left = maxBytes - entriesBytes(stored);
    if (left <= 0) return stored;
    const rest = limitEntries(this.#unstable.slice(this.#unstable.offset, until), left);
    if (rest.length === 1 && entriesBytes(rest) > left) return stored;
    return [...stored, ...rest];
  }
}

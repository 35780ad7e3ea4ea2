import type { ConfState, HardState, Snapshot } from "../core/state.ts";
import type { Entry } from "./entry.ts";

/** Why an entry cannot be read: it went into the snapshot, or it is not stored yet. */
export type Missing = "compacted" | "unavailable";

/**
 * The durable state that the core reads, synchronously; the driver implements it, usually over a
 * write-ahead log whose recent entries are in memory. It must show every write that the driver
 * acknowledged with `advance` or with a storage response, and may show those in progress. An I/O
 * error is not for the core to handle: throw, and the node stops.
 */
export interface Storage {
  /** What the last run left; read once, at the start. */
  initialState(): { readonly hardState: HardState; readonly confState: ConfState };
  /**
   * The entries [from, until), cut to `maxBytes` as counted by `entryBytes` but at least one. The
   * core never changes the array, and asks for nothing beyond `lastIndex`.
   */
  entries(from: number, until: number, maxBytes: number): readonly Entry[] | Missing;
  /** The term of an entry; known from firstIndex - 1 (the end of the snapshot) to lastIndex. */
  term(index: number): number | Missing;
  /** The first index that `entries` can return; one past the snapshot if the log is empty. */
  firstIndex(): number;
  lastIndex(): number;
  /**
   * A snapshot at some applied index, or undefined while none can be had; asked for again later. One
   * that lacks the member it is for does not count: take a new one after members were added.
   */
  snapshot(): Snapshot | undefined;
}

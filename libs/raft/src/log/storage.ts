import type { ConfState, HardState, Snapshot } from "../core/state.ts";
import type { Entry } from "./entry.ts";

/** Why an entry cannot be read: it was compacted into the snapshot, or it is not stored yet. */
export type Missing = "compacted" | "unavailable";

/**
 * The durable state that the core reads synchronously. The driver implements it, usually as a
 * write-ahead log with its recent entries in memory.
 *
 * - It shows every write that the driver acknowledged with `advance` or with a storage response,
 *   and may show writes in progress.
 * - The core does not handle I/O errors: throw, and the node stops.
 */
export interface Storage {
  /** The state that the last run left; read once, at the start. */
  initialState(): { readonly hardState: HardState; readonly confState: ConfState };
  /**
   * The entries [from, until), cut to `maxBytes` as `entryBytes` counts but at least one. The core
   * never changes the array, and requests nothing beyond `lastIndex`.
   */
  entries(from: number, until: number, maxBytes: number): readonly Entry[] | Missing;
  /** The term of an entry; known from firstIndex - 1 (the end of the snapshot) to lastIndex. */
  term(index: number): number | Missing;
  /** The first index that `entries` can return; one past the snapshot if the log is empty. */
  firstIndex(): number;
  lastIndex(): number;
  /**
   * A snapshot at some applied index, or undefined while none is available; the core retries later.
   * One that lacks its target member is ignored: take a new one after members were added.
   */
  snapshot(): Snapshot | undefined;
}

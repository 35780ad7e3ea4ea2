import type { ReadLeaves } from "@heddle/event-store/log/begin-at";
import type { EventStore } from "@heddle/event-store/log/event-store";

/** This master's log of the events of applied entries. */
export interface RecordedEvents {
  readonly origin: string;
  /** Another one after `beginAtKept`. */
  readonly store: EventStore;
  /** The first event that the masters keep; this one may still have earlier ones. */
  readonly firstKept: number;
  /** The number of events that the state of this master counts. */
  readonly count: number;
  /** The place of the first event that this master does not have. */
  readonly next: number;
  /** The number of events that the state counts and this master lacks, as after a snapshot. */
  readonly missing: number;
  /**
   * Begins the log again at the first event that the masters keep, by the hashes of those before.
   * What it lacks is on no master any more.
   */
  beginAtKept(readLeaves: ReadLeaves): Promise<void>;
  /** Adds events that another master has; they begin at the first that is missing. */
  addFetched(first: number, entries: readonly Uint8Array[]): Promise<void>;
  /** Resolves when the events that the state counts now can be read. */
  awaitCounted(signal?: AbortSignal): Promise<void>;
}

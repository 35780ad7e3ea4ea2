import { SerialQueue } from "@heddle/base/async/serial-queue";
import { AppError, toAppError } from "@heddle/base/errors";
import { checkpointSize, firstEvent } from "@heddle/control/audit/audit-changes";
import { cloudEvent } from "@heddle/control/audit/cloud-event";
import type { ReplicatedControl } from "@heddle/control/replicated-control";
import type { ReadLeaves } from "@heddle/event-store/log/begin-at";
import { EventStore, type EventStoreOptions } from "@heddle/event-store/log/event-store";
import { parseNote } from "@heddle/event-store/notes/signed-note";
import { nodeStorageFiles } from "@heddle/storage/storage-files";
import type { RecordedEvents } from "../recorded-events.ts";
import { sealerOf } from "./sealed-members.ts";

/** Events that may wait for the disk before commands are applied more slowly. */
const MAX_PENDING_BYTES = 8 * 2 ** 20;

/** Events gather for one write for this long, or up to this size: the log can make them again. */
const GATHER_MS = 100;
const GROUP_BYTES = 256 * 1024;

/** What the writer reads of the replicated state. */
type Counted = Pick<ReplicatedControl, "derived" | "eventCount" | "logTimeMs" | "index" | "state">;

/**
 * Writes the events of applied entries to this master's event log. Their number is part of the
 * state, so each has the same place on every master, and a replay skips those that are there.
 */
export class EventLogWriter implements RecordedEvents {
  readonly origin: string;
  readonly #place: EventStoreOptions;
  readonly #onFatal: (error: AppError) => void;
  #store: EventStore;
  /** While another log takes its place. */
  #replacing: Promise<void> | undefined;
  /** The place of the next event to write. */
  #next: number;
  /** The first event that the masters keep. */
  #firstKept = 0;
  #count = 0;
  #pendingBytes = 0;
  /** Not given to the event log yet. */
  #gathered: Uint8Array[] = [];
  #gatheredBytes = 0;
  /** Holds the keys of the gathered events' subjects. */
  #sealer: ReturnType<typeof sealerOf> | undefined;
  #timer: NodeJS.Timeout | undefined;
  #written: Promise<void> = Promise.resolve();
  readonly #checkpoints = new SerialQueue();
  #note: unknown;
  #cosigned: unknown;
  readonly #closing = new AbortController();

  private constructor(
    place: EventStoreOptions,
    store: EventStore,
    onFatal: (error: AppError) => void,
  ) {
    this.origin = place.origin;
    this.#place = place;
    this.#store = store;
    this.#next = store.size;
    this.#onFatal = onFatal;
  }

  /**
   * Opens the log of a cluster, one directory for each: a restored cluster begins another log. Tests
   * have fewer events in a file.
   */
  static async open(
    directory: string,
    cluster: string,
    onFatal: (error: AppError) => void,
    segmentEntries?: number,
  ): Promise<EventLogWriter> {
    const origin = originOf(cluster);
    const named = { files: nodeStorageFiles, directory: `${directory}/${cluster}`, origin };
    const place = { ...named, ...(segmentEntries !== undefined && { segmentEntries }) };
    const { log } = await EventStore.open(place);
    return new EventLogWriter(place, log, onFatal);
  }

  get store(): EventStore {
    return this.#store;
  }

  get firstKept(): number {
    return this.#firstKept;
  }

  get count(): number {
    return this.#count;
  }

  get next(): number {
    return this.#next;
  }

  get missing(): number {
    return Math.max(0, this.#count - this.#next);
  }

  /** Takes the events of the entry that was applied last. */
  take(control: Counted): void {
    const { derived, index, logTimeMs: recordedMs } = control;
    this.#count = control.eventCount;
    this.#firstKept = firstEvent(control.state.cluster);
    this.#keepCheckpoint(control.state.cluster.get("checkpoint"));
    this.#keepCosigned(control.state.cluster.get("cosigned"));
    if (derived.length === 0) return;
    const first = this.#count - derived.length;
    // Behind: the catch-up fetches these too.
    if (first > this.#next) return;
    const { origin } = this;
    this.#sealer ??= sealerOf(origin);
    const entries: Uint8Array[] = [];
    for (let ordinal = this.#next - first; ordinal < derived.length; ordinal++) {
      const sequence = first + ordinal;
      const place = { index, ordinal, sequence, recordedMs, origin, seal: this.#sealer(sequence) };
      entries.push(Buffer.from(cloudEvent(derived[ordinal]!, place)));
    }
    if (entries.length > 0) this.#append(entries);
  }

  /** A snapshot replaced the state. */
  restored(control: Counted): void {
    this.#count = control.eventCount;
    this.#firstKept = firstEvent(control.state.cluster);
    this.#keepCheckpoint(control.state.cluster.get("checkpoint"));
    this.#keepCosigned(control.state.cluster.get("cosigned"));
  }

  async beginAtKept(readLeaves: ReadLeaves): Promise<void> {
    const first = this.#firstKept;
    if (this.#next >= first) return;
    const begin = async () => {
      await this.flushed();
      await this.#store.close();
      await EventStore.beginAt(this.#place, first, readLeaves);
    };
    const begun = begin();
    // A log that was not begun is opened as it is.
    const replaced = begun
      .catch(() => undefined)
      .then(async () => {
        this.#store = (await EventStore.open(this.#place)).log;
        this.#next = this.#store.size;
      });
    this.#replacing = replaced.catch((error: unknown) => this.#fail(error));
    await this.#replacing;
    this.#replacing = undefined;
    await begun;
  }

  async addFetched(first: number, entries: readonly Uint8Array[]): Promise<void> {
    if (first !== this.#next) return;
    const lacking = entries.slice(0, this.missing);
    if (lacking.length > 0) this.#append(lacking);
    await this.flushed();
  }

  /** A wait while too many bytes are being written; undefined otherwise. */
  room(): Promise<void> | undefined {
    return this.#pendingBytes > MAX_PENDING_BYTES ? this.flushed() : undefined;
  }

  /** Resolves when all events taken so far are on the disk. */
  flushed(): Promise<void> {
    this.#flush();
    return this.#written;
  }

  async awaitCounted(signal?: AbortSignal): Promise<void> {
    const count = this.#count;
    this.#flush();
    if (this.store.size < count) await this.store.grownBeyond(count - 1, signal);
  }

  /** A checkpoint is not awaited if its events were not received. */
  async close(): Promise<void> {
    this.#closing.abort();
    await this.flushed();
    await this.#checkpoints.idle();
    await this.store.close();
  }

  #append(entries: readonly Uint8Array[]): void {
    const bytes = entries.reduce((sum, { byteLength }) => sum + byteLength, 0);
    this.#next += entries.length;
    this.#pendingBytes += bytes;
    this.#gatheredBytes += bytes;
    for (const entry of entries) this.#gathered.push(entry);
    if (this.#gatheredBytes >= GROUP_BYTES) this.#flush();
    else this.#timer ??= setTimeout(() => this.#flush(), GATHER_MS).unref();
  }

  #flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#sealer = undefined;
    if (this.#gathered.length === 0) return;
    const [entries, bytes] = [this.#gathered, this.#gatheredBytes];
    this.#gathered = [];
    this.#gatheredBytes = 0;
    this.#written = this.store.append(entries).then(
      () => {
        this.#pendingBytes -= bytes;
      },
      (error: unknown) => this.#fail(error),
    );
  }

  /** The checkpoint that the masters agreed on, once the events that it covers are here. */
  #keepCheckpoint(note: unknown): void {
    if (note === this.#note || typeof note !== "string") return;
    this.#note = note;
    const size = checkpointSize(note);
    const keep = async (): Promise<void> => {
      const store = this.#store;
      // A later one covers this one too.
      if (this.#note !== note) return;
      const { signal } = this.#closing;
      try {
        if (store.size < size) await store.grownBeyond(size - 1, signal);
        await store.keep(parseNote(Buffer.from(note)));
        if (store.first < this.#firstKept) await store.prune(this.#firstKept);
      } catch (error) {
        await this.#replacing;
        if (store === this.#store) throw error;
        return keep();
      }
    };
    this.#checkpoints.run(keep).catch((error: unknown) => this.#fail(error));
  }

  /** A checkpoint that witnesses signed; the events that it covers may still come. */
  #keepCosigned(note: unknown): void {
    if (note === this.#cosigned || typeof note !== "string") return;
    this.#cosigned = note;
    const size = checkpointSize(note);
    const keep = async (): Promise<void> => {
      const store = this.#store;
      if (this.#cosigned !== note) return;
      try {
        if (store.size < size) await store.grownBeyond(size - 1, this.#closing.signal);
        await store.keepCosigned(parseNote(Buffer.from(note)));
      } catch (error) {
        await this.#replacing;
        if (store === this.#store) throw error;
        return keep();
      }
    };
    this.#checkpoints.run(keep).catch((error: unknown) => this.#fail(error));
  }

  #fail(thrown: unknown): void {
    if (this.#closing.signal.aborted) return;
    this.#onFatal(toAppError(thrown));
  }
}

/** The name of a cluster's event log. */
function originOf(cluster: string): string {
  return `heddle/events/${cluster}`;
}

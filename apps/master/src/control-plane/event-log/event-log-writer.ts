import { SerialQueue } from "@heddle/base/async/serial-queue";
import { AppError, toAppError } from "@heddle/base/errors";
import { checkpointSize } from "@heddle/control/audit/audit-changes";
import { cloudEvent, type SealMembers } from "@heddle/control/audit/cloud-event";
import type { ReplicatedControl } from "@heddle/control/replicated-control";
import { EventStore } from "@heddle/event-store/log/event-store";
import { parseNote } from "@heddle/event-store/notes/signed-note";
import { nodeStorageFiles } from "@heddle/storage/storage-files";
import { sealMembers } from "./sealed-members.ts";

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
export class EventLogWriter {
  readonly origin: string;
  readonly store: EventStore;
  readonly #onFatal: (error: AppError) => void;
  /** The place of the next event to write. */
  #next: number;
  #count = 0;
  #pendingBytes = 0;
  /** Not given to the event log yet. */
  #gathered: Uint8Array[] = [];
  #gatheredBytes = 0;
  #timer: NodeJS.Timeout | undefined;
  #written: Promise<void> = Promise.resolve();
  readonly #checkpoints = new SerialQueue();
  #note: unknown;
  readonly #closing = new AbortController();

  private constructor(origin: string, store: EventStore, onFatal: (error: AppError) => void) {
    this.origin = origin;
    this.store = store;
    this.#next = store.size;
    this.#onFatal = onFatal;
  }

  /** Opens the log of a cluster, one directory for each: a restored cluster begins another log. */
  static async open(
    directory: string,
    cluster: string,
    onFatal: (error: AppError) => void,
  ): Promise<EventLogWriter> {
    const origin = originOf(cluster);
    const place = { files: nodeStorageFiles, directory: `${directory}/${cluster}`, origin };
    const { log } = await EventStore.open(place);
    return new EventLogWriter(origin, log, onFatal);
  }

  /** How many events the state of this master counts. */
  get count(): number {
    return this.#count;
  }

  /** The place of the first event that this master does not have. */
  get next(): number {
    return this.#next;
  }

  /** How many of them this master lacks: a snapshot of another one replaced its state. */
  get missing(): number {
    return Math.max(0, this.#count - this.#next);
  }

  /** Takes the events of the entry that was applied last. */
  take(control: Counted): void {
    const { derived, index, logTimeMs: recordedMs } = control;
    this.#count = control.eventCount;
    this.#keepCheckpoint(control.state.cluster.get("checkpoint"));
    if (derived.length === 0) return;
    const first = this.#count - derived.length;
    // Behind: the catch-up fetches these too.
    if (first > this.#next) return;
    const entries: Uint8Array[] = [];
    for (let ordinal = this.#next - first; ordinal < derived.length; ordinal++) {
      const { origin } = this;
      const sequence = first + ordinal;
      const seal: SealMembers = (...sealed) => sealMembers({ sequence, origin }, ...sealed);
      const place = { index, ordinal, sequence, recordedMs, origin, seal };
      entries.push(Buffer.from(cloudEvent(derived[ordinal]!, place)));
    }
    if (entries.length > 0) this.#append(entries);
  }

  /** A snapshot replaced the state. */
  restored(control: Counted): void {
    this.#count = control.eventCount;
    this.#keepCheckpoint(control.state.cluster.get("checkpoint"));
  }

  /** Adds events that another master has; they begin at the first that is missing. */
  async addFetched(first: number, entries: readonly Uint8Array[]): Promise<void> {
    if (first !== this.#next) return;
    const lacking = entries.slice(0, this.missing);
    if (lacking.length > 0) this.#append(lacking);
    await this.flushed();
  }

  /** Undefined, or a wait while too much is on its way to the disk. */
  room(): Promise<void> | undefined {
    return this.#pendingBytes > MAX_PENDING_BYTES ? this.flushed() : undefined;
  }

  /** Resolves when all events taken so far are on the disk. */
  flushed(): Promise<void> {
    this.#flush();
    return this.#written;
  }

  /** Resolves when the events that the state counts now can be read. */
  async awaitCounted(signal?: AbortSignal): Promise<void> {
    const count = this.#count;
    this.#flush();
    if (this.store.size < count) await this.store.grownBeyond(count - 1, signal);
  }

  /** A checkpoint whose events have not come is not waited for. */
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
    const keep = async () => {
      // A later one covers this one too.
      if (this.#note !== note) return;
      const { signal } = this.#closing;
      if (this.store.size < size) await this.store.grownBeyond(size - 1, signal);
      await this.store.keep(parseNote(Buffer.from(note)));
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

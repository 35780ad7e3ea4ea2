import type { LogEvent } from "@heddle/contracts/api/events/log";
import type { OpenEvent } from "../../control-plane/event-log/opened-event.ts";
import type { RecordedEvents } from "../../control-plane/recorded-events.ts";

/** Events that one page examines; a page that finds fewer has a cursor to continue from. */
const MAX_EXAMINED = 10_000;
/** Events that are read from the disk at once. */
const READ = 256;

/** An event, and its text for readers. */
export interface StoredEvent {
  readonly event: LogEvent;
  readonly sequence: number;
  readonly text: string;
}

interface Wanted {
  readonly isWanted: (event: LogEvent) => boolean;
  readonly limit: number;
}

/** The events found, and where the next page begins; undefined at the end. */
export interface EventsFound {
  readonly events: readonly StoredEvent[];
  readonly next: number | undefined;
}

/** Searches the event log of this master. */
export class EventLogSearch {
  readonly #log: RecordedEvents["store"];
  readonly #open: OpenEvent;

  constructor(log: RecordedEvents["store"], open: OpenEvent) {
    this.#log = log;
    this.#open = open;
  }

  get first(): number {
    return this.#log.first;
  }

  get size(): number {
    return this.#log.size;
  }

  /** From `begin` on, before `end`, the oldest first. */
  async forward(begin: number, end: number, wanted: Wanted): Promise<EventsFound> {
    const events: StoredEvent[] = [];
    const stop = Math.min(end, begin + MAX_EXAMINED);
    for (let at = begin; at < stop; ) {
      const read = await this.#read(at, stop);
      for (const stored of read) {
        at = stored.sequence + 1;
        if (!wanted.isWanted(stored.event)) continue;
        events.push(stored);
        if (events.length === wanted.limit) return { events, next: at < end ? at : undefined };
      }
    }
    return { events, next: stop < end ? stop : undefined };
  }

  /** Before `end`, down to `begin`, the newest first. */
  async backward(begin: number, end: number, wanted: Wanted): Promise<EventsFound> {
    const events: StoredEvent[] = [];
    const stop = Math.max(begin, end - MAX_EXAMINED);
    for (let at = end; at > stop; ) {
      const read = await this.#readAll(Math.max(stop, at - READ), at);
      for (const stored of read.reverse()) {
        at = stored.sequence;
        if (!wanted.isWanted(stored.event)) continue;
        events.push(stored);
        if (events.length === wanted.limit) return { events, next: at > begin ? at : undefined };
      }
    }
    return { events, next: stop > begin ? stop : undefined };
  }

  /** The first event that was recorded at that time or later. */
  async firstSince(ms: number): Promise<number> {
    let [low, high] = [this.first, this.size];
    while (low < high) {
      const middle = Math.floor((low + high) / 2);
      const [stored] = await this.#read(middle, middle + 1);
      if (stored && Date.parse(stored.event.recordedtime) < ms) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Resolves when there are more events than that. */
  grownBeyond(size: number, signal: AbortSignal): Promise<void> {
    return this.#log.grownBeyond(size, signal);
  }

  async #readAll(begin: number, end: number): Promise<StoredEvent[]> {
    const all: StoredEvent[] = [];
    while (begin + all.length < end) all.push(...(await this.#read(begin + all.length, end)));
    return all;
  }

  async #read(begin: number, end: number): Promise<StoredEvent[]> {
    const { first, entries } = await this.#log.read(begin, Math.min(READ, end - begin));
    return entries.map((bytes, at) => {
      return { ...this.#open(bytes, first + at), sequence: first + at };
    });
  }
}

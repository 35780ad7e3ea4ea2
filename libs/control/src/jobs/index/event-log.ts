import type { EventRecord } from "../records/records.ts";

/** Events kept for watchers; the oldest are dropped. */
const MAX_EVENTS = 100_000;
/** Dropped entries that the array may hold before it is compacted. */
const SLACK = 10_000;

/** A place in the log of events: the log index, and the ordinal within that entry. */
export type Position = Pick<EventRecord, "index" | "ordinal">;

/** The kept events in order, searchable by position. */
export class EventLog {
  #events: EventRecord[];
  #first = 0;

  constructor(events: Iterable<EventRecord>) {
    this.#events = [...events];
  }

  /** Appends an event. Returns the one that it evicts, if any. */
  push(event: EventRecord): EventRecord | undefined {
    this.#events.push(event);
    return this.#events.length - this.#first > MAX_EVENTS ? this.shift() : undefined;
  }

  /** Drops the oldest event and returns it. */
  shift(): EventRecord | undefined {
    if (this.#first >= this.#events.length) return undefined;
    const oldest = this.#events[this.#first++];
    if (this.#first > SLACK) {
      this.#events = this.#events.slice(this.#first);
      this.#first = 0;
    }
    return oldest;
  }

  /** Whether events after the position may have been dropped. */
  isCompacted(after: Position): boolean {
    const oldest = this.#events[this.#first];
    if (!oldest || comparePositions(after, oldest) >= 0) return false;
    // Positions are those of events, except the one before all.
    return after.index > 0 || this.#events.length - this.#first >= MAX_EVENTS;
  }

  /** Every kept event after the position, oldest first. Events may come and go while it is read. */
  *after(position: Position): Generator<EventRecord, void> {
    let at = this.#placeAfter(position);
    for (let event = this.#events[at]; event; event = this.#events[at]) {
      yield event;
      at = this.#events[at] === event ? at + 1 : this.#placeAfter(event);
    }
  }

  #placeAfter(position: Position): number {
    let low = this.#first;
    let high = this.#events.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (comparePositions(this.#events[middle]!, position) <= 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** The position of the newest event. */
  get last(): Position {
    return this.#events.length > this.#first ? this.#events.at(-1)! : { index: 0, ordinal: 0 };
  }
}

/** Negative if `a` precedes `b`. */
export function comparePositions(a: Position, b: Position): number {
  return a.index - b.index || a.ordinal - b.ordinal;
}

/** A position as text, `1042.0`: the id of an event. */
export function positionText({ index, ordinal }: Position): string {
  return `${index}.${ordinal}`;
}

/** The position that a text holds; undefined if it is malformed. */
export function parsePosition(text: string): Position | undefined {
  const [, index, ordinal] = /^(\d{1,15})\.(\d{1,9})$/.exec(text) ?? [];
  if (index === undefined || ordinal === undefined) return undefined;
  return { index: Number(index), ordinal: Number(ordinal) };
}

import { AppError } from "@heddle/base/errors";
import type { ActiveSegment, LogPlace } from "./log-recovery.ts";
import { openSealed, readEntries, type SealedSegment, segmentPath } from "./segment.ts";

/** Full segments that are kept open. */
const MAX_OPEN = 8;
/** The bytes of entries that are read at a time. */
export const PAGE_BYTES = 2 ** 20;

type ReadableSegment = Pick<SealedSegment, "file" | "offsets">;

interface OpenSegment {
  readonly opened: Promise<ReadableSegment>;
  /** Reads in progress; a closed one ends with the last of them. */
  readers: number;
  isDropped: boolean;
}

/** Reads entries of segments, of which few are open at a time. */
export class SegmentReader {
  readonly #place: LogPlace;
  /** Keyed by first entry, the one used last at the end. */
  readonly #open = new Map<number, OpenSegment>();

  constructor(place: LogPlace) {
    this.#place = place;
  }

  /** Entries from that one on: at least one, and at most `limit` or about `PAGE_BYTES`. */
  async read(sequence: number, limit: number, active: ActiveSegment): Promise<Uint8Array[]> {
    const at = sequence % this.#place.shape.width;
    const first = sequence - at;
    const segment = this.#take(first, active);
    segment.readers++;
    try {
      const { file, offsets } = await segment.opened;
      const path = segmentPath(this.#place.directory, first);
      const span = offsets.span(at, limit, PAGE_BYTES);
      const entries = await readEntries(file, path, first + span.first, span);
      return entries.slice(at - span.first, at - span.first + limit);
    } finally {
      segment.readers--;
      await this.#closeUnused(segment);
    }
  }

  /** Closes the segment and removes its file. */
  async remove(first: number): Promise<void> {
    const { files, directory } = this.#place;
    await this.#drop(first);
    await files.remove(segmentPath(directory, first));
  }

  async close(): Promise<void> {
    await Promise.all([...this.#open.keys()].map((first) => this.#drop(first)));
  }

  #take(first: number, active: ActiveSegment): OpenSegment {
    let segment = this.#open.get(first);
    if (!segment) {
      const opened = this.#openFile(first, active);
      segment = { opened, readers: 0, isDropped: false };
      // A failed one is tried again by the next reader; this one gets the error where it waits.
      opened.catch(() => this.#open.delete(first));
    }
    this.#open.delete(first);
    this.#open.set(first, segment);
    const [oldest] = this.#open.keys();
    if (this.#open.size > MAX_OPEN && oldest !== undefined) {
      this.#drop(oldest).catch(() => undefined);
    }
    return segment;
  }

  /** The active segment has its offsets in memory, which it keeps when it is full. */
  async #openFile(first: number, active: ActiveSegment): Promise<ReadableSegment> {
    const { files, directory, shape } = this.#place;
    const path = segmentPath(directory, first);
    if (first !== active.first) return openSealed(files, path, shape.width);
    return { file: await files.open(path, "read"), offsets: active.offsets };
  }

  async #drop(first: number): Promise<void> {
    const segment = this.#open.get(first);
    if (!segment) return;
    this.#open.delete(first);
    segment.isDropped = true;
    await this.#closeUnused(segment);
  }

  async #closeUnused(segment: OpenSegment): Promise<void> {
    if (!segment.isDropped || segment.readers > 0) return;
    const opened = await segment.opened.catch(() => undefined);
    await opened?.file.close();
  }
}

/** Throws `gone` or `invalid_value` where the log cannot have the entry. */
export function checkSequence(sequence: number, first: number, size: number): void {
  if (!Number.isSafeInteger(sequence) || sequence < 0 || sequence > size) {
    const message = `there is no event ${sequence}; the log has ${size}. Give a number from ${first} to ${size}`;
    throw new AppError("invalid_value", message);
  }
  if (sequence >= first) return;
  const message = `event ${sequence} was removed by retention; the first kept one is ${first}`;
  throw new AppError("gone", message);
}

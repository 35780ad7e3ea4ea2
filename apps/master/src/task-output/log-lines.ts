import type { LogPiece } from "@heddle/storage/task-log";
import type { LogName } from "./log-name.ts";
import type { LogStorePort } from "./log-thread/log-store-api.ts";

/** Longer lines are split. */
const MAX_LINE_BYTES = 64 * 1024;
const PIECE_BYTES = 64 * 1024;
/** Bytes from the end that are searched for the last lines. */
const MAX_TAIL_BYTES = 1024 * 1024;
const NEWLINE = 10;

/** An item of a log: a line, a part of one, or a gap. */
export interface LogItem {
  readonly name: LogName;
  readonly offset: number;
  /** When the worker received the line's first byte. */
  readonly unixMs: number;
  /** The line without its end; empty for a gap. */
  readonly text: Buffer;
  /** False if the line continues in the next item, or has no end. */
  readonly ended: boolean;
  /** Bytes that are permanently lost; 0 for a line. */
  readonly gapBytes: number;
}

/** Reads one log line by line from a position, as far as it is available here. */
export class LogLines {
  readonly name: LogName;
  readonly #store: LogStorePort;
  #items: LogItem[] = [];
  #head = 0;
  /** The next byte to read; `#rest` holds the bytes before it that belong to no item yet. */
  #position: number;
  #rest = Buffer.alloc(0);
  #restMs = 0;
  #complete = false;

  constructor(name: LogName, store: LogStorePort, offset: number) {
    this.name = name;
    this.#store = store;
    this.#position = offset;
  }

  /** The first byte that no taken item contains. */
  get offset(): number {
    return this.#items[this.#head]?.offset ?? this.#position - this.#rest.byteLength;
  }

  /** Whether everything was taken and nothing will follow. */
  get isEnded(): boolean {
    return this.#complete && this.peek() === undefined;
  }

  peek(): LogItem | undefined {
    return this.#items[this.#head];
  }

  take(): LogItem | undefined {
    return this.#items[this.#head++];
  }

  /** Reads on if no item is pending; false if there is nothing more now. */
  async fill(): Promise<boolean> {
    while (this.peek() === undefined && !this.#complete) {
      this.#items = [];
      this.#head = 0;
      const piece = await this.#store.read(this.name, this.#position, PIECE_BYTES);
      if (!piece) return false;
      const before = this.#position;
      this.#add(piece);
      if (this.#position === before && !this.#complete) return false;
    }
    return this.peek() !== undefined;
  }

  /** Returns the beginning of an unfinished line. */
  takeUnfinished(): LogItem | undefined {
    if (this.peek() || this.#rest.byteLength === 0) return undefined;
    this.#cut(this.#rest.byteLength, false);
    return this.take();
  }

  /** Seeks to the last `count` lines, within the search bound. */
  async seekTail(count: number): Promise<void> {
    const { end, first } = await this.#store.state(this.name);
    const from = Math.max(first, end - MAX_TAIL_BYTES);
    const bytes = await this.#bytes(from, end);
    // The end of the last line starts no other.
    let lines = bytes.at(-1) === NEWLINE ? -1 : 0;
    let at = bytes.byteLength;
    while (at > 0) {
      if (bytes[at - 1] === NEWLINE && ++lines >= count) break;
      at -= 1;
    }
    const isCut = at === 0 && from > first && lines < count;
    this.#position = isCut ? from + bytes.indexOf(NEWLINE) + 1 : from + at;
  }

  /** Seeks to the first line begun at that time or later. */
  async seekTime(unixMs: number): Promise<void> {
    const offset = await this.#store.offsetAt(this.name, unixMs);
    const before = offset === 0 ? undefined : await this.#bytes(offset - 1, offset);
    this.#position = offset;
    if (before === undefined || before[0] === NEWLINE) return;
    // A line that continues here began earlier.
    await this.fill();
    this.take();
  }

  async #bytes(from: number, to: number): Promise<Buffer> {
    const parts: Buffer[] = [];
    for (let at = from; at < to; ) {
      const piece = await this.#store.read(this.name, at, Math.min(PIECE_BYTES, to - at));
      if (!piece || piece.data.byteLength === 0) break;
      // Lost bytes count as bytes without line ends.
      if (piece.offset > at) parts.push(Buffer.alloc(piece.offset - at));
      parts.push(piece.data);
      at = piece.offset + piece.data.byteLength;
    }
    return Buffer.concat(parts);
  }

  #add({ offset, data, times, complete }: LogPiece): void {
    if (offset > this.#position) this.#addGap(offset);
    let start = 0;
    while (start < data.byteLength) {
      const end = data.indexOf(NEWLINE, start);
      const part = data.subarray(start, end < 0 ? data.byteLength : end);
      if (this.#rest.byteLength === 0) {
        this.#restMs = times.findLast(({ at }) => at <= start)?.unixMs ?? this.#restMs;
      }
      this.#rest = Buffer.concat([this.#rest, part]);
      this.#position += part.byteLength;
      if (end >= 0) {
        this.#cut(this.#rest.byteLength, true);
        this.#position += 1;
      }
      while (this.#rest.byteLength >= MAX_LINE_BYTES) this.#cut(MAX_LINE_BYTES, false);
      start += part.byteLength + 1;
    }
    if (!complete) return;
    this.#complete = true;
    if (this.#rest.byteLength > 0) this.#cut(this.#rest.byteLength, false);
  }

  /** Makes an item of the first unassigned bytes. */
  #cut(bytes: number, ended: boolean): void {
    this.#items.push({
      name: this.name,
      offset: this.#position - this.#rest.byteLength,
      unixMs: this.#restMs,
      text: this.#rest.subarray(0, bytes),
      ended,
      gapBytes: 0,
    });
    this.#rest = this.#rest.subarray(bytes);
  }

  #addGap(to: number): void {
    if (this.#rest.byteLength > 0) this.#cut(this.#rest.byteLength, false);
    const { name } = this;
    const text = Buffer.alloc(0);
    const gapBytes = to - this.#position;
    const base = { name, text, unixMs: this.#restMs, ended: true };
    this.#items.push({ ...base, offset: this.#position, gapBytes });
    this.#position = to;
  }
}

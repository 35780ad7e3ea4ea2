import type { LogPiece } from "@heddle/storage/task-log";
import type { LogName } from "./log-name.ts";
import type { LogStore } from "./log-store.ts";

/** A longer line comes in parts. */
const maxLineBytes = 64 * 1024;
const pieceBytes = 64 * 1024;
/** How far back from the end the last lines are looked for. */
const maxTailBytes = 1024 * 1024;
const newline = 10;

/** What a reader of logs gets. */
export interface LogItem {
  readonly name: LogName;
  readonly offset: number;
  /** When the line's first byte was seen by its worker. */
  readonly unixMs: number;
  /** Bytes up to and without the line's end; of a gap none. */
  readonly text: Buffer;
  /** False where the line goes on in the next item, or has no end. */
  readonly ended: boolean;
  /** Bytes that are gone for ever; 0 for a line. */
  readonly gapBytes: number;
}

/** One log, read line by line from a place on, as far as it is here. */
export class LogLines {
  readonly name: LogName;
  readonly #store: LogStore;
  #items: LogItem[] = [];
  #head = 0;
  /** The next byte to read; the bytes before it that no item holds are in `#rest`. */
  #position: number;
  #rest = Buffer.alloc(0);
  #restMs = 0;
  #complete = false;

  constructor(name: LogName, store: LogStore, offset: number) {
    this.name = name;
    this.#store = store;
    this.#position = offset;
  }

  /** The first byte that no taken item has held. */
  get offset(): number {
    return this.#items[this.#head]?.offset ?? this.#position - this.#rest.byteLength;
  }

  /** Whether everything was taken and nothing more will come. */
  get isOver(): boolean {
    return this.#complete && this.peek() === undefined;
  }

  peek(): LogItem | undefined {
    return this.#items[this.#head];
  }

  take(): LogItem | undefined {
    return this.#items[this.#head++];
  }

  /** Reads on if no item waits; false where there is nothing more now. */
  async fill(): Promise<boolean> {
    while (this.peek() === undefined && !this.#complete) {
      this.#items = [];
      this.#head = 0;
      const piece = await this.#store.read(this.name, this.#position, pieceBytes);
      if (!piece) return false;
      const before = this.#position;
      this.#add(piece);
      if (this.#position === before && !this.#complete) return false;
    }
    return this.peek() !== undefined;
  }

  /** Gives out the beginning of a line that has no end yet. */
  takeUnfinished(): LogItem | undefined {
    if (this.peek() || this.#rest.byteLength === 0) return undefined;
    this.#cut(this.#rest.byteLength, false);
    return this.take();
  }

  /** Goes to where the last `count` lines begin, or as far back as is looked. */
  async seekTail(count: number): Promise<void> {
    const { end, first } = await this.#store.state(this.name);
    const from = Math.max(first, end - maxTailBytes);
    const bytes = await this.#bytes(from, end);
    // The end of the last line is not the beginning of another.
    let lines = bytes.at(-1) === newline ? -1 : 0;
    let at = bytes.byteLength;
    while (at > 0) {
      if (bytes[at - 1] === newline && ++lines >= count) break;
      at -= 1;
    }
    const isCut = at === 0 && from > first && lines < count;
    this.#position = isCut ? from + bytes.indexOf(newline) + 1 : from + at;
  }

  /** Goes to the first line that was begun at that time or later. */
  async seekTime(unixMs: number): Promise<void> {
    const offset = await this.#store.offsetAt(this.name, unixMs);
    const before = offset === 0 ? undefined : await this.#bytes(offset - 1, offset);
    this.#position = offset;
    if (before === undefined || before[0] === newline) return;
    // The line that was under way began earlier.
    await this.fill();
    this.take();
  }

  async #bytes(from: number, to: number): Promise<Buffer> {
    const parts: Buffer[] = [];
    for (let at = from; at < to; ) {
      const piece = await this.#store.read(this.name, at, Math.min(pieceBytes, to - at));
      if (!piece || piece.data.byteLength === 0) break;
      // Bytes that are gone in between count as bytes of no line.
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
      const end = data.indexOf(newline, start);
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
      while (this.#rest.byteLength >= maxLineBytes) this.#cut(maxLineBytes, false);
      start += part.byteLength + 1;
    }
    if (!complete) return;
    this.#complete = true;
    if (this.#rest.byteLength > 0) this.#cut(this.#rest.byteLength, false);
  }

  /** Makes an item of the first bytes of what was read and belongs to none. */
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

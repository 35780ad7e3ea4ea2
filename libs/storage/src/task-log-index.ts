import { constants } from "node:fs";
import { relative } from "node:path";
import { replaceFileBeneath } from "@heddle/base/beneath";
import { pooledLogFiles, type TaskLogFile, type TaskLogFiles } from "./log-files.ts";

const NO_BYTES = Buffer.alloc(0);
const APPEND = constants.O_RDWR | constants.O_CREAT | constants.O_APPEND;

/**
 * Metadata of a log file's bytes, in byte order: when they were first seen, which are lost, and
 * whether the file has ended. On disk it is a file of fixed-size records beside the data; a torn
 * last record is ignored.
 */
export class TaskLogIndex {
  readonly #path: string;
  readonly #root: string;
  readonly #files: TaskLogFiles;
  #file: TaskLogFile;
  #spans: Span[] = [];
  #complete = false;
  #mark: Mark | undefined;
  #unwritten: Buffer[] = [];
  /** Spans on disk have changed: the file must be rewritten. */
  #isRewritten = false;
  #writtenBytes: number;

  private constructor(
    path: string,
    root: string,
    files: TaskLogFiles,
    opened: { readonly file: TaskLogFile; readonly bytes: Buffer },
  ) {
    this.#path = path;
    this.#root = root;
    this.#files = files;
    const { file, bytes } = opened;
    this.#file = file;
    this.#writtenBytes = this.#load(bytes);
  }

  /** Opens the index at `path`, or creates it. It follows no link below `root`. */
  static async open(
    path: string,
    root: string,
    files: TaskLogFiles = pooledLogFiles,
  ): Promise<TaskLogIndex> {
    const file = await files.open(root, relative(root, path), APPEND);
    try {
      const { size } = await file.stat();
      const bytes = size > 0 ? await file.readFile() : NO_BYTES;
      const index = new TaskLogIndex(path, root, files, { file, bytes });
      if (index.#writtenBytes < bytes.byteLength) await file.truncate(index.#writtenBytes);
      return index;
    } catch (error) {
      await file.close();
      throw error;
    }
  }

  /** The number of known bytes of the file, dropped ones included. */
  get end(): number {
    return this.#spans.at(-1)?.end ?? 0;
  }

  /** Bytes before this offset are dropped. */
  get first(): number {
    const span = this.#spans[0];
    return span?.dropped ? span.end : 0;
  }

  get complete(): boolean {
    return this.#complete;
  }

  /** The latest mark, whose bytes are not in the file: those after it are the file's first. */
  get mark(): Mark | undefined {
    return this.#mark;
  }

  /** The span that contains the byte, or undefined at the end. */
  spanAt(offset: number): Span | undefined {
    return this.#spans[this.#position(offset)];
  }

  /** The spans that overlap [from, to), in order. */
  between(from: number, to: number): Span[] {
    const found: Span[] = [];
    for (let i = this.#position(from); i < this.#spans.length; i++) {
      const span = this.#spans[i] as Span;
      if (span.start >= to) break;
      found.push(span);
    }
    return found;
  }

  /** The spans whose bytes are lost, in order. */
  get gaps(): Span[] {
    return this.#spans.filter(({ dropped }) => dropped);
  }

  /** The first offset whose byte was seen at `unixMs` or later; the end where there is none. */
  offsetAt(unixMs: number): number {
    const span = this.#spans.find((candidate) => !candidate.dropped && candidate.unixMs >= unixMs);
    return span?.start ?? this.end;
  }

  /** Bytes from the end up to `end` were seen at `unixMs`; there may be none. */
  add(end: number, unixMs: number): void {
    this.#push({ start: this.end, end, unixMs, dropped: false });
  }

  /** The bytes from the end up to `end` are lost. */
  skip(end: number): void {
    this.#push({ start: this.end, end, unixMs: 0, dropped: true });
  }

  /** All bytes so far are lost, and a mark of `markBytes` bytes follows; `flush` writes it. */
  cut(markBytes: number, unixMs: number): void {
    const start = this.end;
    const end = start + markBytes;
    this.#mark = { start, end };
    this.#spans = [
      { start: 0, end: start, unixMs: 0, dropped: true },
      { start, end, unixMs, dropped: false },
    ];
    this.#isRewritten = true;
  }

  /** The lost bytes [start, end) arrived after all, from another copy. */
  fill(start: number, end: number, unixMs: number): void {
    const at = this.#position(start);
    const span = this.#spans[at];
    if (!span?.dropped || span.start > start || span.end < end) return;
    const parts = [
      { ...span, end: start },
      { start, end, unixMs, dropped: false },
      { ...span, start: end },
    ];
    this.#spans.splice(at, 1, ...parts.filter((part) => part.end > part.start));
    this.#isRewritten = true;
  }

  finish(): void {
    if (this.#complete) return;
    this.#complete = true;
    this.#unwritten.push(record(COMPLETE, this.end, this.end, 0));
  }

  /** Writes what was added; with `sync` it is on disk when this resolves. */
  async flush(sync: boolean): Promise<void> {
    if (this.#isRewritten) await this.#rewrite();
    if (this.#unwritten.length > 0) {
      const bytes = Buffer.concat(this.#unwritten.splice(0));
      // A failed write may have left a part of a record.
      this.#isRewritten = true;
      await this.#file.appendFile(bytes);
      this.#isRewritten = false;
      this.#writtenBytes += bytes.byteLength;
    }
    if (sync) await this.#file.datasync();
  }

  /** Drops all before `offset`, in memory and on disk: the file is rewritten. */
  async dropBefore(offset: number): Promise<void> {
    const kept = this.#spans.filter((span) => span.end > offset);
    const [head, ...rest] = kept;
    const cut = head && { ...head, start: Math.max(head.start, offset) };
    this.#spans = [
      { start: 0, end: offset, unixMs: 0, dropped: true },
      ...(cut ? [cut, ...rest] : []),
    ];
    await this.#rewrite();
  }

  close(): Promise<void> {
    return this.#file.close();
  }

  async #rewrite(): Promise<void> {
    this.#unwritten = [];
    this.#isRewritten = true;
    const records = this.#spans.map((span) =>
      record(span.dropped ? DROPPED : SEEN, span.start, span.end, span.unixMs),
    );
    if (this.#mark) records.unshift(record(MARK, this.#mark.start, this.#mark.end, 0));
    if (this.#complete) records.push(record(COMPLETE, this.end, this.end, 0));
    const path = relative(this.#root, this.#path);
    await replaceFileBeneath(this.#root, path, Buffer.concat(records));
    const before = this.#file;
    this.#file = await this.#files.open(this.#root, path, APPEND);
    await before.close();
    this.#writtenBytes = records.length * RECORD_BYTES;
    this.#isRewritten = false;
  }

  #push(span: Span): void {
    if (span.end <= span.start) return;
    this.#spans.push(span);
    this.#unwritten.push(record(span.dropped ? DROPPED : SEEN, span.start, span.end, span.unixMs));
  }

  /** The position of the span that contains the byte, by binary search. */
  #position(offset: number): number {
    let low = 0;
    let high = this.#spans.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#spans[middle] as Span).end <= offset) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Returns the number of bytes that hold whole, contiguous records. */
  #load(bytes: Buffer): number {
    let at = 0;
    for (; at + RECORD_BYTES <= bytes.byteLength; at += RECORD_BYTES) {
      const kind = bytes.readDoubleLE(at);
      const start = bytes.readDoubleLE(at + 8);
      const end = bytes.readDoubleLE(at + 16);
      if (kind === COMPLETE) this.#complete = true;
      else if (kind === MARK) this.#mark = { start, end };
      else if ((kind !== SEEN && kind !== DROPPED) || start !== this.end || end <= start) return at;
      else {
        const unixMs = bytes.readDoubleLE(at + 24);
        this.#spans.push({ start, end, unixMs, dropped: kind === DROPPED });
      }
    }
    return at;
  }
}

/** Bytes [start, end) of a log that were first seen at `unixMs`, or that are lost. */
export interface Span {
  readonly start: number;
  readonly end: number;
  readonly unixMs: number;
  readonly dropped: boolean;
}

/** The offsets of a mark's bytes, which are not in the file. */
export interface Mark {
  readonly start: number;
  readonly end: number;
}

/**
 * A record is four doubles: kind, start, end, time. No kind is 0, so zeroed bytes are no record.
 */
const RECORD_BYTES = 32;
const SEEN = 1;
const DROPPED = 2;
const COMPLETE = 3;
const MARK = 4;

function record(kind: number, start: number, end: number, unixMs: number): Buffer {
  const bytes = Buffer.alloc(RECORD_BYTES);
  [kind, start, end, unixMs].forEach((value, i) => {
    bytes.writeDoubleLE(value, i * 8);
  });
  return bytes;
}

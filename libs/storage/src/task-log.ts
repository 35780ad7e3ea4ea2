import { spawn } from "node:child_process";
import { constants } from "node:fs";
import { dirname, relative } from "node:path";
import { openFileBeneath } from "@heddle/base/beneath";
import { pooledLogFiles, type TaskLogFile, type TaskLogFiles } from "./log-files.ts";
import { TaskLogIndex } from "./task-log-index.ts";

/** Bytes before the known end, compared to detect that the file was truncated. */
const TAIL_BYTES = 64;
const NEWLINE = 10;
const PUNCH_TIMEOUT_MS = 10_000;
/**
 * Begins with the newline of an unfinished line, which is omitted if there is none. An index stores
 * only the position of a mark, so the length must not change.
 */
const TRUNCATION_MARK = Buffer.from(
  "\n[heddle: the program emptied its own output, by truncating the file that its worker keeps of it, " +
    "opened by that file's name: what of it had not been read is lost]\n",
);

/** A piece of a log on the wire. */
export interface LogPiece {
  /** Where `data` begins in the file; after the requested offset if bytes are lost. */
  readonly offset: number;
  readonly data: Buffer;
  /** Lines that begin at `at` (within `data`) or later, up to the next entry, have that time. */
  readonly times: readonly { readonly at: number; readonly unixMs: number }[];
  /** The file ends with this piece. */
  readonly complete: boolean;
}

/**
 * One stream of one task on disk: `PATH` holds the bytes at their offsets, `PATH.index` their
 * times.
 *
 * - On a worker other processes write the data and `observe` follows it; on a master `append`
 *   writes shipped pieces.
 * - Calls that write must not overlap.
 * - A program of the worker's user can truncate the file by its name. Then the offsets continue: a
 *   mark follows the bytes seen, and the file's bytes follow the mark.
 */
export class TaskLog {
  readonly path: string;
  readonly #root: string;
  readonly #index: TaskLogIndex;
  readonly #data: TaskLogFile;
  /** The last bytes that `observe` saw, at their position in the file. */
  #tail: { readonly at: number; readonly bytes: Buffer } | undefined;
  /** Bytes were written since the last sync. */
  #isUnsynced = false;

  private constructor(path: string, root: string, index: TaskLogIndex, data: TaskLogFile) {
    this.path = path;
    this.#root = root;
    this.#index = index;
    this.#data = data;
  }

  /** Opens or creates the files; the folder must exist. It follows no link below `root`. */
  static async open(
    path: string,
    root: string = dirname(path),
    files: TaskLogFiles = pooledLogFiles,
  ): Promise<TaskLog> {
    const index = await TaskLogIndex.open(indexPath(path), root, files);
    try {
      const flags = constants.O_RDWR | constants.O_CREAT;
      const data = await files.open(root, relative(root, path), flags);
      return new TaskLog(path, root, index, data);
    } catch (error) {
      await index.close();
      throw error;
    }
  }

  /** The number of bytes of the stream stored here, without gaps except lost bytes. */
  get end(): number {
    return this.#index.end;
  }

  /** Bytes before this offset are lost. */
  get first(): number {
    return this.#index.first;
  }

  /** The offset of the file's first byte: above 0 once the task has truncated its file. */
  get base(): number {
    return this.#index.mark?.end ?? 0;
  }

  get complete(): boolean {
    return this.#index.complete;
  }

  /**
   * Reads the size of the file and returns whether it grew. After a truncation the file counts from
   * its beginning.
   *
   * - `now` is called after the read; it returns the time in ms, or undefined if the observation is
   *   stale.
   */
  async observe(now: () => number | undefined): Promise<boolean> {
    const { size } = await this.#data.stat();
    const isWhole = size >= this.end - this.base && (await this.#isUnchanged());
    const unixMs = now();
    if (unixMs === undefined || this.complete) return false;
    if (!isWhole) this.#index.cut(this.#truncationMark().byteLength, unixMs);
    const isGrown = !isWhole || this.base + size > this.end;
    if (isGrown) this.#index.add(this.base + size, unixMs);
    if (isGrown || !this.#tail) this.#tail = await this.#lastBytes();
    await this.#index.flush(false);
    return isGrown;
  }

  /** The current size of the file. */
  async size(): Promise<number> {
    return (await this.#data.stat()).size;
  }

  /** Appends to the file, beside other writers. */
  async appendText(text: string): Promise<void> {
    const flags = constants.O_WRONLY | constants.O_APPEND;
    const file = await openFileBeneath(this.#root, relative(this.#root, this.path), flags);
    try {
      await file.writeFile(text);
    } finally {
      await file.close();
    }
  }

  /** Frees the first bytes of the file, which read as zeros from then on. */
  punchHole(length: number): Promise<void> {
    // The child has the open file as its descriptor 3: the name may be another file's by now.
    const args = ["--punch-hole", "--offset", "0", "--length", String(length), "/proc/self/fd/3"];
    return new Promise((resolve, reject) => {
      const child = spawn("fallocate", args, {
        stdio: ["ignore", "ignore", "ignore", this.#data.fd],
        timeout: PUNCH_TIMEOUT_MS,
      });
      child.once("error", reject);
      child.once("exit", (code) => {
        if (code === 0) resolve();
        else reject(new Error(`fallocate ended with ${code}`));
      });
    });
  }

  /** Ignores later bytes from the call on; resolves when the end is on disk. */
  async finish(): Promise<void> {
    this.#index.finish();
    await this.#index.flush(false);
  }

  /**
   * Writes a shipped piece, whose bytes before `first` are lost. It skips bytes that are already
   * stored, and ignores a piece that would leave a gap. It is durable after `sync`.
   */
  async append(piece: LogPiece & { readonly first: number }): Promise<void> {
    if (this.complete) return;
    if (piece.first > this.end) this.#index.skip(piece.first);
    const known = this.end - piece.offset;
    if (known < 0) return;
    if (known < piece.data.byteLength) {
      const data = piece.data.subarray(known);
      this.#isUnsynced = true;
      await this.#data.write(data, 0, data.byteLength, this.end);
      this.#addTimes(piece);
    }
    if (piece.complete && this.end === piece.offset + piece.data.byteLength) this.#index.finish();
  }

  /** The lost bytes, in order. */
  get gaps(): readonly { readonly start: number; readonly end: number }[] {
    return this.#index.gaps;
  }

  /** Writes the bytes of a piece that are lost here. It is durable after `sync`. */
  async fill({ offset, data, times }: LogPiece): Promise<void> {
    const pieceEnd = offset + data.byteLength;
    const parts = times.map(({ at, unixMs }, i) => ({
      start: offset + at,
      end: Math.min(pieceEnd, offset + (times[i + 1]?.at ?? Infinity)),
      unixMs,
    }));
    for (const part of parts) {
      for (const gap of this.#index.between(part.start, part.end)) {
        if (!gap.dropped) continue;
        const start = Math.max(part.start, gap.start);
        const end = Math.min(part.end, gap.end);
        this.#isUnsynced = true;
        await this.#data.write(data, start - offset, end - start, start);
        this.#index.fill(start, end, part.unixMs);
      }
    }
  }

  /** Resolves when all appended bytes are on disk. */
  async sync(): Promise<void> {
    if (this.#isUnsynced) await this.#data.datasync();
    this.#isUnsynced = false;
    await this.#index.flush(true);
  }

  /**
   * The piece from `offset` on, or from the first byte after it that is not lost. If the file is
   * shorter than indexed, the piece is short or empty; once the log is complete, the missing bytes
   * are lost.
   */
  async read(offset: number, maxBytes: number): Promise<LogPiece> {
    const span = this.#index.spanAt(offset);
    const start = span?.dropped ? span.end : Math.max(0, offset);
    const known = this.#index.between(start, Math.min(this.end, start + maxBytes));
    const gap = known.findIndex(({ dropped }) => dropped);
    const spans = gap < 0 ? known : known.slice(0, gap);
    const end = Math.min(spans.at(-1)?.end ?? start, start + maxBytes);
    const data = Buffer.alloc(end - start);
    const bytesRead = await this.#fetch(data, start);
    // Bytes that were dropped meanwhile may have been read as zeros.
    if (this.first > start) return this.read(this.first, maxBytes);
    if (bytesRead === 0 && data.byteLength > 0 && this.complete) {
      return { offset: this.end, data: Buffer.alloc(0), times: [], complete: true };
    }
    return {
      offset: start,
      data: data.subarray(0, bytesRead),
      times: spans.map((each) => ({ at: Math.max(0, each.start - start), unixMs: each.unixMs })),
      complete: this.complete && start + bytesRead >= this.end,
    };
  }

  /** The first offset that was seen at that time or later. */
  offsetAt(unixMs: number): number {
    return this.#index.offsetAt(unixMs);
  }

  /** Drops the times of all before `offset`, whose bytes the caller has freed. */
  dropBefore(offset: number): Promise<void> {
    return this.#index.dropBefore(offset);
  }

  async close(): Promise<void> {
    await this.#index.close();
    await this.#data.close();
  }

  /** Reads at `start`, from marks and from the file; returns the number of bytes read. */
  async #fetch(data: Buffer, start: number): Promise<number> {
    const { mark } = this.#index;
    const marked = Math.min(data.byteLength, Math.max(0, this.base - start));
    if (mark && marked > 0) {
      const text = TRUNCATION_MARK.subarray(TRUNCATION_MARK.byteLength - (mark.end - mark.start));
      text.copy(data, 0, start - mark.start, start - mark.start + marked);
    }
    const wanted = data.byteLength - marked;
    const at = start + marked - this.base;
    if (wanted === 0) return marked;
    const { bytesRead } = await this.#data.read(data, marked, wanted, at);
    // Bytes after a truncation must not pass for the earlier ones.
    return marked + ((await this.#isUnchanged()) ? bytesRead : 0);
  }

  /** Whether the file still has the last bytes that were seen; true if none were recorded. */
  async #isUnchanged(): Promise<boolean> {
    if (!this.#tail) return true;
    const { at, bytes } = this.#tail;
    const now = Buffer.alloc(bytes.byteLength);
    const { bytesRead } = await this.#data.read(now, 0, now.byteLength, at);
    return bytesRead === now.byteLength && now.equals(bytes);
  }

  /** A truncation during the read leaves zeros in the buffer, which the file does not have. */
  async #lastBytes() {
    const size = this.end - this.base;
    const at = Math.max(0, size - TAIL_BYTES);
    const bytes = Buffer.alloc(size - at);
    await this.#data.read(bytes, 0, bytes.byteLength, at);
    return { at, bytes };
  }

  #truncationMark(): Buffer {
    const isLineOver = this.#tail?.bytes.at(-1) === NEWLINE;
    return isLineOver ? TRUNCATION_MARK.subarray(1) : TRUNCATION_MARK;
  }

  #addTimes({ offset, data, times }: LogPiece): void {
    const pieceEnd = offset + data.byteLength;
    times.forEach(({ unixMs }, i) => {
      const next = times[i + 1];
      const end = Math.min(pieceEnd, next ? offset + next.at : pieceEnd);
      this.#index.add(end, unixMs);
    });
    this.#index.add(pieceEnd, times.at(-1)?.unixMs ?? 0);
  }
}

/** Whether a log exists at the path. */
export function taskLogExists(path: string, files: TaskLogFiles): Promise<boolean> {
  return files.exists(indexPath(path));
}

function indexPath(path: string): string {
  return `${path}.index`;
}

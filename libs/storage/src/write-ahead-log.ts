import { AppError } from "@heddle/base/errors";
import { closedOnFailure, type StorageFile, type StorageFiles } from "./storage-files.ts";
import { encodeEntries, endOfRun } from "./wal-entries.ts";
import {
  encodeWalRecord,
  recordBytes,
  WAL_KINDS,
  WAL_MAX_PAYLOAD_BYTES,
  type WalBuffer,
  type WalLink,
  type WalRecord,
} from "./wal-record.ts";
import {
  type RecoveredLog,
  type SegmentIndexes,
  type WalHead,
  type WalOwner,
  type WalPosition,
  WalReader,
} from "./wal-recovery.ts";
import { type PreparedSegment, WalSegments } from "./wal-segments.ts";

const SEGMENT_BYTES = 64 * 2 ** 20;

export interface WalOptions {
  readonly files: StorageFiles;
  readonly directory: string;
  readonly owner: WalOwner;
  /** Size of a segment file; 64 MiB by default. */
  readonly segmentBytes?: number;
  /**
   * Bytes that may wait for the disk before `append` rejects with `overloaded`; 256 MiB by default.
   */
  readonly maxPendingBytes?: number;
}

interface Waiter {
  resolve(): void;
  reject(error: unknown): void;
}

/**
 * An append-only log of records in preallocated segments, with group commit.
 *
 * - While one group is being written, all records appended meanwhile become the next group, one
 *   O_DSYNC write.
 * - A failed write or sync is final, as the page cache may have dropped the data. There is no
 *   retry: every later append rejects, and the owner must end the process.
 */
export class WriteAheadLog {
  readonly #options: Required<WalOptions>;
  readonly #segments: WalSegments;
  readonly #indexes: SegmentIndexes;
  #segment: StorageFile;
  #segmentSize: number;
  #position: WalPosition;
  /** The newest segment whose header is on the disk; earlier ones can be released. */
  #startedSequence: number;
  #next: Promise<PreparedSegment> | undefined;
  #pending: WalRecord[] = [];
  #pendingBytes = 0;
  #waiters: Waiter[] = [];
  #writing: Promise<void> | undefined;
  #failure: AppError | undefined;
  #buffer = walBuffer(64 * 1024);
  /** The newest `state` and `snapshot` records, repeated at the head of each new segment. */
  #repeatedRecords = new Map<number, WalRecord>();
  /** True from `renew` until the next group. */
  #renewing = false;
  /** Files of segments before this one are not reused. */
  #usableFrom = 0;

  private constructor(
    options: Required<WalOptions>,
    segment: StorageFile,
    segmentSize: number,
    position: WalPosition,
    indexes: SegmentIndexes,
  ) {
    this.#options = options;
    this.#segments = new WalSegments(options);
    this.#segment = segment;
    this.#segmentSize = segmentSize;
    this.#position = position;
    this.#startedSequence = position.sequence;
    this.#indexes = indexes;
  }

  /**
   * Opens the log in the directory, or creates one. Rejects with `server_error` on corruption and
   * with `conflict` on another node's files; a torn last write is truncated and reported.
   */
  static async open(options: WalOptions): Promise<{ log: WriteAheadLog; recovered: RecoveredLog }> {
    const full = { segmentBytes: SEGMENT_BYTES, maxPendingBytes: 256 * 2 ** 20, ...options };
    const { files, directory } = full;
    await files.makeDirectory(directory);
    const reader = new WalReader(full.owner, full.segmentBytes);
    const names = await segmentNames(files, directory);
    reader.read(await Promise.all(names.map((name) => readSegment(files, directory, name))));
    const { recovered, indexes } = reader;
    const position = reader.position ?? { sequence: -1, offset: 0, previousCrc: 0, group: 0 };
    await removeAfter(full, names, position.sequence);
    const log =
      position.sequence < 0
        ? await WriteAheadLog.#start(full)
        : await WriteAheadLog.#resume(full, position, indexes, recovered.tornBytes);
    for (const record of [recovered.state, recovered.snapshot]) {
      if (record) log.#repeatedRecords.set(record.kind, record);
    }
    return { log, recovered };
  }

  static async #start(options: Required<WalOptions>): Promise<WriteAheadLog> {
    const position = { sequence: -1, offset: 0, previousCrc: 0, group: 0 };
    // Group numbers start again, so no file of an earlier log may follow them.
    const segments = new WalSegments(options);
    await segments.removeSpares();
    const first = await segments.prepare();
    const log = new WriteAheadLog(options, first.file, 0, position, new Map());
    log.#next = Promise.resolve(first);
    await log.append([]).catch(async (error: unknown) => {
      await log.close();
      throw error;
    });
    return log;
  }

  static async #resume(
    options: Required<WalOptions>,
    position: WalPosition,
    indexes: SegmentIndexes,
    tornBytes: number,
  ): Promise<WriteAheadLog> {
    const segments = new WalSegments(options);
    const file = await options.files.open(segments.path(position.sequence), "durable");
    return closedOnFailure(file, async () => {
      const size = await file.size();
      if (tornBytes > 0) {
        await file.write(
          new Uint8Array(Math.min(tornBytes, size - position.offset)),
          position.offset,
        );
      }
      // A killed process may have left the records read in the page cache only: make them durable.
      await file.sync();
      return new WriteAheadLog(options, file, size, position, indexes);
    });
  }

  /** Resolves when the records, and all appended before them, are on the disk. */
  append(records: readonly WalRecord[]): Promise<void> {
    if (this.#failure) return Promise.reject(this.#failure);
    let bytes = 0;
    for (const record of records) bytes += recordBytes(record);
    if (this.#pendingBytes + bytes > this.#options.maxPendingBytes) {
      return Promise.reject(new AppError("overloaded", "the disk does not keep up with the log"));
    }
    for (const record of records) {
      if (record.payload.byteLength > WAL_MAX_PAYLOAD_BYTES)
        throw new RangeError("payload too big");
      this.#pending.push(record);
    }
    this.#pendingBytes += bytes;
    const durable = new Promise<void>((resolve, reject) => this.#waiters.push({ resolve, reject }));
    this.#writing ??= this.#writeGroups();
    return durable;
  }

  /**
   * Continues in a new file. Earlier files hold bytes that must not stay on the disk: they are
   * removed on release and never reused.
   */
  renew(): Promise<void> {
    this.#renewing = true;
    return this.append([]);
  }

  /** Drops the segments whose every entry is below the index; a few files are kept as spares. */
  async release(index: number): Promise<void> {
    const gone = [...this.#indexes]
      .filter(([sequence, last]) => sequence < this.#startedSequence && last < index)
      .map(([sequence]) => sequence)
      .sort((a, b) => a - b);
    // No name has changed, so a sync would only cost a flush of the disk.
    if (gone.length === 0) return;
    for (const sequence of gone) {
      // Oldest first and without gaps: a missing segment in the middle reads as corruption.
      if (sequence !== Math.min(...this.#indexes.keys())) break;
      await this.#segments.retire(sequence, sequence >= this.#usableFrom);
      this.#indexes.delete(sequence);
    }
    await this.#segments.syncNames();
  }

  async close(): Promise<void> {
    await this.#writing?.catch(() => undefined);
    this.#failure ??= new AppError("unavailable", "the write-ahead log is closed");
    const next = await this.#next?.catch(() => undefined);
    await next?.file.close();
    await this.#segment.close();
  }

  async #writeGroups(): Promise<void> {
    while (this.#waiters.length > 0) {
      const waiters = this.#waiters;
      this.#waiters = [];
      try {
        await this.#writeGroup();
      } catch (error) {
        this.#fail(error, waiters);
        break;
      }
      for (const waiter of waiters) waiter.resolve();
    }
    this.#writing = undefined;
  }

  async #writeGroup(): Promise<void> {
    let records: readonly WalRecord[] = this.#pending;
    let bytes = this.#pendingBytes;
    this.#pending = [];
    this.#pendingBytes = 0;
    if (this.#renewing || this.#position.offset + bytes > this.#segmentSize) {
      records = await this.#roll(records);
      bytes = groupBytes(records);
    }
    if (records.length === 0) return;
    const { offset } = this.#position;
    const position = this.#encode(records, bytes);
    await this.#segment.write(this.#buffer.bytes.subarray(0, position.offset - offset), offset);
    this.#position = position;
    this.#startedSequence = position.sequence;
    if (position.offset * 2 > this.#segmentSize) this.#prepareNext();
  }

  /**
   * Encodes a group, of at most `size` bytes, into the buffer and returns the position after it.
   */
  #encode(records: readonly WalRecord[], size: number): WalPosition {
    if (this.#buffer.bytes.byteLength < size) {
      this.#buffer = walBuffer(2 ** Math.ceil(Math.log2(size)));
    }
    const group = this.#position.group + 1;
    let { offset, previousCrc } = this.#position;
    const start = offset;
    for (let from = 0; from < records.length; ) {
      const to = endOfRun(records, from);
      const link = { previousCrc, group, endsGroup: to === records.length };
      const run = from === 0 && link.endsGroup ? records : records.slice(from, to);
      const { crc, end } = this.#encodeRun(run, offset - start, link);
      previousCrc = crc;
      offset = start + end;
      from = to;
    }
    return { sequence: this.#position.sequence, offset, previousCrc, group };
  }

  /** Encodes one record into the buffer: a run of entries, or a single record. */
  #encodeRun(run: readonly WalRecord[], at: number, link: WalLink): { crc: number; end: number } {
    const [record] = run as [WalRecord];
    if (record.kind === WAL_KINDS.entry) this.#noteEntries(run);
    else if (record.kind !== WAL_KINDS.segment) this.#repeatedRecords.set(record.kind, record);
    if (run.length > 1) return encodeEntries(this.#buffer, at, run, link);
    const crc = encodeWalRecord(this.#buffer, at, record, link);
    return { crc, end: at + recordBytes(record) };
  }

  #noteEntries(run: readonly WalRecord[]): void {
    const { sequence } = this.#position;
    let last = this.#indexes.get(sequence) ?? -1;
    for (const { index } of run) last = Math.max(last, index);
    this.#indexes.set(sequence, last);
  }

  /**
   * Puts the prepared segment in use and returns the group with that segment's header before it.
   */
  async #roll(records: readonly WalRecord[]): Promise<WalRecord[]> {
    const sequence = this.#position.sequence + 1;
    if (this.#renewing) await this.#dropUsed(sequence);
    this.#prepareNext();
    const { file, isReused } = await (this.#next as Promise<PreparedSegment>);
    this.#next = undefined;
    const group = [
      { kind: WAL_KINDS.segment, term: 0, index: sequence, payload: this.#head(isReused) },
      ...this.#repeatedRecords.values(),
      ...records,
    ];
    const used = this.#segment;
    this.#segment = file;
    if (used !== file) await used.close();
    await this.#segments.begin(sequence);
    this.#segmentSize = Math.max(this.#options.segmentBytes, groupBytes(group));
    this.#position = { ...this.#position, sequence, offset: 0 };
    this.#indexes.set(sequence, -1);
    return group;
  }

  async #dropUsed(sequence: number): Promise<void> {
    await (await this.#next)?.file.close();
    this.#next = undefined;
    await this.#segments.removeSpares();
    this.#usableFrom = sequence;
    this.#renewing = false;
  }

  #head(isReused: boolean): Buffer {
    const { owner, segmentBytes: bytes } = this.#options;
    const { cluster, node } = owner;
    const head: WalHead = { format: 3, cluster, node, bytes };
    return Buffer.from(JSON.stringify(isReused ? { ...head, reused: true } : head));
  }

  /**
   * Starts when half of the segment is used. By then a released segment may be available for reuse;
   * otherwise there is time to fill a file with zeros.
   */
  #prepareNext(): void {
    if (this.#next) return;
    this.#next = this.#segments.prepare();
    // The roll that needs the segment gets the error; until then it must not crash the process.
    this.#next.catch(() => undefined);
  }

  #fail(error: unknown, waiters: readonly Waiter[]): void {
    const reason = error instanceof Error ? error.message : String(error);
    this.#failure = new AppError("server_error", `the write-ahead log cannot write: ${reason}`, {
      cause: error,
    });
    for (const waiter of [...waiters, ...this.#waiters]) waiter.reject(this.#failure);
    this.#waiters = [];
  }
}

function walBuffer(size: number): WalBuffer {
  const bytes = Buffer.alloc(size);
  return { bytes, view: new DataView(bytes.buffer, bytes.byteOffset, size) };
}

function groupBytes(records: readonly WalRecord[]): number {
  return records.reduce((sum, record) => sum + recordBytes(record), 0);
}

/**
 * What a log holds that another thread may be writing: nothing is opened for writing, or removed. Its
 * end may be missing, and all of it where segments were replaced meanwhile.
 */
export async function readWal(
  options: Pick<WalOptions, "files" | "directory" | "owner" | "segmentBytes">,
): Promise<RecoveredLog> {
  const { files, directory, owner, segmentBytes = SEGMENT_BYTES } = options;
  const reader = new WalReader(owner, segmentBytes);
  const names = await segmentNames(files, directory);
  reader.read(await Promise.all(names.map((name) => readSegment(files, directory, name, "read"))));
  return reader.recovered;
}

async function segmentNames(files: StorageFiles, directory: string): Promise<string[]> {
  return (await files.list(directory)).filter((name) => /^wal-\d{16}\.log$/.test(name));
}

async function readSegment(
  files: StorageFiles,
  directory: string,
  name: string,
  mode: "buffered" | "read" = "buffered",
) {
  const file = await files.open(`${directory}/${name}`, mode);
  try {
    const read = await file.read(await file.size(), 0);
    const bytes = Buffer.from(read.buffer, read.byteOffset, read.byteLength);
    return { name, sequence: Number(name.slice(4, 20)), bytes };
  } finally {
    await file.close();
  }
}

/**
 * After a torn write in an earlier segment, removes a later segment, which was never acknowledged.
 */
async function removeAfter(
  options: Required<WalOptions>,
  names: readonly string[],
  sequence: number,
): Promise<void> {
  for (const name of names) {
    if (Number(name.slice(4, 20)) > sequence) {
      await options.files.remove(`${options.directory}/${name}`);
    }
  }
}

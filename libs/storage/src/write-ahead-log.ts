import { AppError } from "@heddle/base/errors";
import type { StorageFile, StorageFiles } from "./storage-files.ts";
import {
  encodeWalRecord,
  WAL_KINDS,
  WAL_MAX_PAYLOAD_BYTES,
  type WalRecord,
  walRecordBytes,
} from "./wal-record.ts";
import {
  type RecoveredLog,
  type SegmentIndexes,
  type WalOwner,
  type WalPosition,
  WalReader,
} from "./wal-recovery.ts";

export interface WalOptions {
  readonly files: StorageFiles;
  readonly directory: string;
  readonly owner: WalOwner;
  /** Size of a segment file; 64 MiB unless told. */
  readonly segmentBytes?: number;
  /** Bytes that may wait for the disk before `append` refuses with `overloaded`; 256 MiB. */
  readonly maxPendingBytes?: number;
}

interface Waiter {
  resolve(): void;
  reject(error: unknown): void;
}

/**
 * An append-only log of records in zero-filled segments, with group commit: while one group is on
 * its way to the disk, everything appended meanwhile becomes the next group, written by one O_DSYNC
 * write. A failed write or sync is final: the page cache may have dropped the data, so nothing is
 * tried again, every later append rejects, and the owner must end the process.
 */
export class WriteAheadLog {
  readonly #options: Required<WalOptions>;
  readonly #indexes: SegmentIndexes;
  #segment: StorageFile;
  #segmentSize: number;
  #position: WalPosition;
  /** The newest segment whose head is on the disk; those before it can be done without. */
  #startedSequence: number;
  #next: Promise<StorageFile> | undefined;
  #pending: WalRecord[] = [];
  #pendingBytes = 0;
  #waiters: Waiter[] = [];
  #writing: Promise<void> | undefined;
  #failure: AppError | undefined;
  #buffer = Buffer.alloc(64 * 1024);
  /** The newest `state` and `snapshot` records: repeated at the head of each new segment. */
  #standing = new Map<number, WalRecord>();

  private constructor(
    options: Required<WalOptions>,
    segment: StorageFile,
    segmentSize: number,
    position: WalPosition,
    indexes: SegmentIndexes,
  ) {
    this.#options = options;
    this.#segment = segment;
    this.#segmentSize = segmentSize;
    this.#position = position;
    this.#startedSequence = position.sequence;
    this.#indexes = indexes;
  }

  /**
   * Opens the log in the directory, or starts one. Rejects with `server_error` on corruption and
   * with `conflict` on another node's files; a torn last write is cut off and told.
   */
  static async open(options: WalOptions): Promise<{ log: WriteAheadLog; recovered: RecoveredLog }> {
    const full = { segmentBytes: 64 * 2 ** 20, maxPendingBytes: 256 * 2 ** 20, ...options };
    const { files, directory } = full;
    await files.makeDirectory(directory);
    const reader = new WalReader(full.owner);
    const names = (await files.list(directory)).filter((name) => /^wal-\d{16}\.log$/.test(name));
    reader.read(await Promise.all(names.map((name) => readSegment(files, directory, name))));
    const { recovered, indexes } = reader;
    const position = reader.position ?? { sequence: -1, offset: 0, previousCrc: 0, group: 0 };
    await removeAfter(full, names, position.sequence);
    const log =
      position.sequence < 0
        ? await WriteAheadLog.#start(full)
        : await WriteAheadLog.#resume(full, position, indexes, recovered.tornBytes);
    for (const record of [recovered.state, recovered.snapshot]) {
      if (record) log.#standing.set(record.kind, record);
    }
    return { log, recovered };
  }

  static async #start(options: Required<WalOptions>): Promise<WriteAheadLog> {
    const position = { sequence: -1, offset: 0, previousCrc: 0, group: 0 };
    const nowhere = await prepareSegment(options);
    const log = new WriteAheadLog(options, nowhere, 0, position, new Map());
    log.#next = Promise.resolve(nowhere);
    await log.append([]);
    return log;
  }

  static async #resume(
    options: Required<WalOptions>,
    position: WalPosition,
    indexes: SegmentIndexes,
    tornBytes: number,
  ): Promise<WriteAheadLog> {
    const file = await options.files.open(segmentPath(options, position.sequence), "durable");
    const size = await file.size();
    if (tornBytes > 0) {
      await file.write(
        new Uint8Array(Math.min(tornBytes, size - position.offset)),
        position.offset,
      );
    }
    // What was read may be in the page cache alone, left by a killed process: make it durable.
    await file.sync();
    const log = new WriteAheadLog(options, file, size, position, indexes);
    log.#prepareNext();
    return log;
  }

  /** Resolves when the records, and all appended before them, are on the disk. */
  append(records: readonly WalRecord[]): Promise<void> {
    if (this.#failure) return Promise.reject(this.#failure);
    const bytes = records.reduce((sum, { payload }) => sum + walRecordBytes(payload.byteLength), 0);
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

  /** Removes the segments whose every entry is below the index. */
  async release(index: number): Promise<void> {
    const { files, directory } = this.#options;
    const gone = [...this.#indexes]
      .filter(([sequence, last]) => sequence < this.#startedSequence && last < index)
      .map(([sequence]) => sequence)
      .sort((a, b) => a - b);
    for (const sequence of gone) {
      // Oldest first and without gaps: a missing segment in the middle reads as corruption.
      if (sequence !== Math.min(...this.#indexes.keys())) break;
      await files.remove(segmentPath(this.#options, sequence));
      this.#indexes.delete(sequence);
    }
    await files.syncDirectory(directory);
  }

  async close(): Promise<void> {
    await this.#writing?.catch(() => undefined);
    this.#failure ??= new AppError("unavailable", "the write-ahead log is closed");
    const next = await this.#next?.catch(() => undefined);
    await next?.close();
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
    let records = this.#pending;
    this.#pending = [];
    this.#pendingBytes = 0;
    if (this.#position.offset + groupBytes(records) > this.#segmentSize) {
      records = await this.#roll(records);
    }
    if (records.length === 0) return;
    const { bytes, position } = this.#encode(records);
    await this.#segment.write(bytes, this.#position.offset);
    this.#position = position;
    this.#startedSequence = position.sequence;
  }

  #encode(records: readonly WalRecord[]): { bytes: Uint8Array; position: WalPosition } {
    const size = groupBytes(records);
    if (this.#buffer.byteLength < size)
      this.#buffer = Buffer.alloc(2 ** Math.ceil(Math.log2(size)));
    const group = this.#position.group + 1;
    let { previousCrc } = this.#position;
    let at = 0;
    for (const [i, record] of records.entries()) {
      const link = { previousCrc, group, endsGroup: i === records.length - 1 };
      previousCrc = encodeWalRecord(this.#buffer, at, record, link);
      at += walRecordBytes(record.payload.byteLength);
      this.#note(record);
    }
    const { sequence, offset } = this.#position;
    const position = { sequence, offset: offset + at, previousCrc, group };
    return { bytes: this.#buffer.subarray(0, at), position };
  }

  #note(record: WalRecord): void {
    if (record.kind === WAL_KINDS.entry) {
      const { sequence } = this.#position;
      this.#indexes.set(sequence, Math.max(this.#indexes.get(sequence) ?? -1, record.index));
    } else if (record.kind !== WAL_KINDS.segment) {
      this.#standing.set(record.kind, record);
    }
  }

  /** Puts the prepared segment in use and returns the group with that segment's head before it. */
  async #roll(records: readonly WalRecord[]): Promise<WalRecord[]> {
    const sequence = this.#position.sequence + 1;
    const payload = Buffer.from(JSON.stringify({ format: 1, ...this.#options.owner }));
    const head = { kind: WAL_KINDS.segment, term: 0, index: sequence, payload };
    const group = [head, ...this.#standing.values(), ...records];
    const next = await (this.#next ?? prepareSegment(this.#options));
    if (this.#segment !== next) await this.#segment.close();
    const { files, directory } = this.#options;
    await files.rename(nextPath(this.#options), segmentPath(this.#options, sequence));
    await files.syncDirectory(directory);
    this.#segment = next;
    this.#segmentSize = Math.max(this.#options.segmentBytes, groupBytes(group));
    this.#position = { ...this.#position, sequence, offset: 0 };
    this.#indexes.set(sequence, -1);
    this.#prepareNext();
    return group;
  }

  #prepareNext(): void {
    this.#next = prepareSegment(this.#options);
    // The roll that needs the segment meets the error; until then it must not crash the process.
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

function groupBytes(records: readonly WalRecord[]): number {
  return records.reduce((sum, { payload }) => sum + walRecordBytes(payload.byteLength), 0);
}

function segmentPath({ directory }: WalOptions, sequence: number): string {
  return `${directory}/wal-${String(sequence).padStart(16, "0")}.log`;
}

function nextPath({ directory }: WalOptions): string {
  return `${directory}/wal-next.tmp`;
}

/** A zero-filled, synced file: appends into it change no metadata, so O_DSYNC costs one write. */
async function prepareSegment(options: Required<WalOptions>): Promise<StorageFile> {
  const { files, segmentBytes } = options;
  const file = await files.open(nextPath(options), "buffered");
  await file.truncate(0);
  const zeros = new Uint8Array(Math.min(segmentBytes, 2 ** 20));
  for (let at = 0; at < segmentBytes; at += zeros.byteLength) {
    await file.write(zeros.subarray(0, Math.min(zeros.byteLength, segmentBytes - at)), at);
  }
  await file.sync();
  await file.close();
  return files.open(nextPath(options), "durable");
}

async function readSegment(files: StorageFiles, directory: string, name: string) {
  const file = await files.open(`${directory}/${name}`, "buffered");
  try {
    const bytes = Buffer.from(await file.read(await file.size(), 0));
    return { name, sequence: Number(name.slice(4, 20)), bytes };
  } finally {
    await file.close();
  }
}

/** After a torn write in an earlier segment, a later, never acknowledged segment goes. */
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

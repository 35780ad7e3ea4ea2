import { AppError } from "@heddle/base/errors";
import {
  closedOnFailure,
  type StorageFile,
  type StorageFiles,
} from "@heddle/storage/storage-files";
import {
  decodeWalRecord,
  encodeWalRecord,
  findGroup,
  lastNonZero,
  recordBytes,
  type StoredRecord,
  WAL_KINDS,
  type WalBuffer,
  type WalRecord,
} from "@heddle/storage/wal-record";

/** What the next group of records continues: the checksum before it, and the number of groups. */
export interface RecordChain {
  readonly crc: number;
  readonly group: number;
}

/** The position after a record. */
export interface RecordEnd extends RecordChain {
  readonly offset: number;
}

export interface PlacedRecord {
  readonly record: StoredRecord;
  readonly offset: number;
}

export interface ScanOptions {
  /** The longest record, with its head. */
  readonly maxRecordBytes: number;
  readonly from: RecordEnd;
  /** Receives the records of whole groups, in order. */
  readonly visit: (records: readonly PlacedRecord[]) => void | Promise<void>;
}

export interface ScanResult {
  /** After the last whole group. */
  readonly end: RecordEnd;
  /** The bytes of an unfinished write after it. */
  readonly tornBytes: number;
}

const PIECE_BYTES = 2 ** 20;
const BUFFER_BYTES = 64 * 1024;

/**
 * Reads the records of a file from a position on. A bad record ends them: with a later group behind
 * it the file is corrupt (`server_error`), else the last write was torn.
 */
export async function scanRecords(
  file: StorageFile,
  path: string,
  { maxRecordBytes, from, visit }: ScanOptions,
): Promise<ScanResult> {
  let end = from;
  let group: PlacedRecord[] = [];
  for await (const records of readRecords(file, from, maxRecordBytes)) {
    const whole: PlacedRecord[] = [];
    for (const placed of records) {
      const { record, offset } = placed;
      group.push(placed);
      if (!record.endsGroup) continue;
      whole.push(...group);
      group = [];
      end = { crc: record.crc, group: record.group, offset: offset + record.stride };
    }
    if (whole.length > 0) await visit(whole);
  }
  const tornBytes = await bytesAfter(file, path, end, maxRecordBytes);
  return { end, tornBytes };
}

/** The valid records that follow each other, as many at a time as one piece of the file has. */
async function* readRecords(
  file: StorageFile,
  from: RecordEnd,
  maxRecordBytes: number,
): AsyncGenerator<PlacedRecord[], void> {
  const size = await file.size();
  let { offset, crc, group } = from;
  let piece = Buffer.alloc(0);
  let start = offset;
  for (;;) {
    if (start + piece.byteLength < size) {
      const rest = piece.subarray(offset - start);
      const more = await file.read(PIECE_BYTES + maxRecordBytes, offset + rest.byteLength);
      piece = Buffer.concat([rest, more]);
      start = offset;
    }
    const isLast = start + piece.byteLength >= size;
    const found: PlacedRecord[] = [];
    let isBad = false;
    while (isLast || offset - start + maxRecordBytes <= piece.byteLength) {
      const record = decodeWalRecord(piece, offset - start);
      isBad =
        !record || record.previousCrc !== crc || record.group - group > 1 || record.group < group;
      if (isBad || !record) break;
      found.push({ record, offset });
      offset += record.stride;
      ({ crc, group } = record);
    }
    if (found.length > 0) yield found;
    if (isBad || isLast) return;
  }
}

/** The bytes of an unfinished group. Throws `server_error` where a later group follows them. */
async function bytesAfter(
  file: StorageFile,
  path: string,
  end: RecordEnd,
  maxRecordBytes: number,
): Promise<number> {
  const size = await file.size();
  let used = end.offset;
  for (let at = end.offset; at < size; at += PIECE_BYTES) {
    const piece = Buffer.from(await file.read(PIECE_BYTES + maxRecordBytes, at));
    const last = lastNonZero(piece);
    if (last >= 0) used = Math.max(used, at + last + 1);
    if (findGroup(piece, end.group + 1, Number.MAX_SAFE_INTEGER) === undefined) continue;
    throw new AppError(
      "server_error",
      `${path} is corrupt at byte ${end.offset}: later records follow a damaged one. ` +
        "Restore the directory from a backup, or from another master",
    );
  }
  return used - end.offset;
}

/** A file of records that grows by groups, each of which is one durable write. */
export class RecordFile {
  readonly #file: StorageFile;
  readonly #growBytes: number;
  #end: RecordEnd;
  /** The file has zeros up to here, so that a write changes no size. */
  #reserved: number;
  #buffer = recordBuffer(BUFFER_BYTES);

  private constructor(file: StorageFile, end: RecordEnd, reserved: number, growBytes: number) {
    this.#file = file;
    this.#end = end;
    this.#reserved = reserved;
    this.#growBytes = growBytes;
  }

  /** Writes a file with a head; the caller syncs the directory. */
  static async create(
    files: StorageFiles,
    path: string,
    head: { readonly payload: Uint8Array; readonly index: number },
    { chain, growBytes }: { readonly chain: RecordChain; readonly growBytes: number },
  ): Promise<RecordFile> {
    const file = await files.open(path, "durable");
    return closedOnFailure(file, async () => {
      await file.truncate(0);
      const created = new RecordFile(file, { ...chain, offset: 0 }, 0, growBytes);
      await created.append([{ kind: WAL_KINDS.segment, term: 0, ...head }]);
      return created;
    });
  }

  /** Continues after what a scan found; a torn write is overwritten with zeros. */
  static async resume(
    files: StorageFiles,
    path: string,
    { end, tornBytes }: ScanResult,
    growBytes: number,
  ): Promise<RecordFile> {
    const file = await files.open(path, "durable");
    return closedOnFailure(file, async () => {
      for (let at = 0; at < tornBytes; at += PIECE_BYTES) {
        await file.write(new Uint8Array(Math.min(PIECE_BYTES, tornBytes - at)), end.offset + at);
      }
      // A killed process may have left the records read in the page cache only: make them durable.
      await file.sync();
      return new RecordFile(file, end, await file.size(), growBytes);
    });
  }

  get end(): RecordEnd {
    return this.#end;
  }

  /** Resolves when the records are on the disk. One call at a time; the payloads are read at once. */
  async append(records: readonly WalRecord[]): Promise<void> {
    let size = 0;
    for (const record of records) size += recordBytes(record);
    if (this.#buffer.bytes.byteLength < size) {
      this.#buffer = recordBuffer(2 ** Math.ceil(Math.log2(size)));
    }
    const start = this.#end.offset;
    const group = this.#end.group + 1;
    let { crc, offset } = this.#end;
    for (const [at, record] of records.entries()) {
      const link = { previousCrc: crc, group, endsGroup: at === records.length - 1 };
      crc = encodeWalRecord(this.#buffer, offset - start, record, link);
      offset += recordBytes(record);
    }
    // Without a wait the disk works as soon as this returns, beside what the caller does then.
    if (this.#reserved < offset) await this.#reserve(offset);
    await this.#file.write(this.#buffer.bytes.subarray(0, size), start);
    this.#end = { crc, group, offset };
  }

  /** Removes the reserved bytes after the last record. */
  async trim(): Promise<void> {
    await this.#file.truncate(this.#end.offset);
    await this.#file.sync();
    this.#reserved = this.#end.offset;
  }

  read(length: number, position: number): Promise<Uint8Array> {
    return this.#file.read(length, position);
  }

  async close(): Promise<void> {
    await this.#file.close();
  }

  async #reserve(end: number): Promise<void> {
    while (this.#reserved < end) {
      await this.#file.write(new Uint8Array(this.#growBytes), this.#reserved);
      this.#reserved += this.#growBytes;
    }
  }
}

function recordBuffer(size: number): WalBuffer {
  const bytes = Buffer.alloc(size);
  return { bytes, view: new DataView(bytes.buffer, bytes.byteOffset, size) };
}

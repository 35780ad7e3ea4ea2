import { AppError } from "@heddle/base/errors";
import { closedOnFailure, type StorageFiles } from "@heddle/storage/storage-files";
import { decodeWalRecord, WAL_KINDS, walRecordBytes } from "@heddle/storage/wal-record";
import { formatNote, MAX_NOTE_BYTES, parseNote, type SignedNote } from "../notes/signed-note.ts";
import { type PlacedRecord, RecordFile, scanRecords } from "./record-file.ts";
import { damaged } from "./segment.ts";

/**
 * The most checkpoints that are kept; beyond it every second one is dropped, but the first and
 * last.
 */
const MAX_KEPT = 10_000;
const MAX_RECORD_BYTES = walRecordBytes(MAX_NOTE_BYTES);
const GROW_BYTES = 64 * 1024;
const MIN_REWRITE_BYTES = 256 * 1024;
const NO_CHAIN = { crc: 0, group: 0 };
const TEMPORARY_SUFFIX = ".tmp";

interface Place {
  readonly size: number;
  readonly offset: number;
  readonly bytes: number;
}

/** The signed checkpoints of a log by their sizes, in one file. */
export class CheckpointFile {
  readonly #files: StorageFiles;
  readonly #directory: string;
  readonly #origin: string;
  #file: RecordFile;
  #places: Place[] = [];
  #latest: SignedNote | undefined;

  private constructor(files: StorageFiles, directory: string, origin: string, file: RecordFile) {
    this.#files = files;
    this.#directory = directory;
    this.#origin = origin;
    this.#file = file;
  }

  /** Throws `server_error` where the file is damaged, and `conflict` where it is of another log. */
  static async open(
    files: StorageFiles,
    directory: string,
    origin: string,
  ): Promise<CheckpointFile> {
    const path = checkpointPath(directory);
    await files.remove(path + TEMPORARY_SUFFIX);
    const reader = await files.open(path, "buffered");
    let head: Uint8Array | undefined;
    const places: Place[] = [];
    const visit = (records: readonly PlacedRecord[]) => {
      for (const { record, offset } of records) {
        if (record.kind === WAL_KINDS.segment) head = Buffer.from(record.payload);
        else places.push({ size: record.index, offset, bytes: record.stride });
      }
    };
    const from = { ...NO_CHAIN, offset: 0 };
    const options = { maxRecordBytes: MAX_RECORD_BYTES, from, visit };
    const scan = await scanRecords(reader, path, options).finally(() => reader.close());
    if (!head) return CheckpointFile.#create(files, directory, origin);
    const { origin: written } = JSON.parse(Buffer.from(head).toString());
    if (written !== origin) {
      throw new AppError("conflict", `${path} is of the log ${written}, not of ${origin}`);
    }
    const file = await RecordFile.resume(files, path, scan, GROW_BYTES);
    const opened = new CheckpointFile(files, directory, origin, file);
    for (const place of places) opened.#note(place);
    const last = opened.#places.at(-1);
    if (last) opened.#latest = await closedOnFailure(file, () => opened.#read(last));
    return opened;
  }

  /** All checkpoints of a log that no process has open, in the order of their writes. */
  static async notes(
    files: StorageFiles,
    directory: string,
  ): Promise<{ readonly notes: readonly Uint8Array[]; readonly tornBytes: number }> {
    const path = checkpointPath(directory);
    const file = await files.open(path, "read");
    const notes: Uint8Array[] = [];
    const visit = (records: readonly PlacedRecord[]) => {
      for (const { record } of records) {
        if (record.kind === WAL_KINDS.state) notes.push(Buffer.from(record.payload));
      }
    };
    const from = { ...NO_CHAIN, offset: 0 };
    const options = { maxRecordBytes: MAX_RECORD_BYTES, from, visit };
    const { tornBytes } = await scanRecords(file, path, options).finally(() => file.close());
    return { notes, tornBytes };
  }

  static async #create(files: StorageFiles, directory: string, origin: string) {
    const file = await newFile(files, checkpointPath(directory), origin);
    await closedOnFailure(file, () => files.syncDirectory(directory));
    return new CheckpointFile(files, directory, origin, file);
  }

  /** The checkpoint of the largest tree. */
  get latest(): SignedNote | undefined {
    return this.#latest;
  }

  /** The sizes of all checkpoints, rising. */
  get sizes(): readonly number[] {
    return this.#places.map(({ size }) => size);
  }

  /** The checkpoint of the smallest tree with at least that size. */
  async from(size: number): Promise<SignedNote | undefined> {
    const place = this.#places.find((kept) => kept.size >= size);
    return place && this.#read(place);
  }

  /** Resolves when the checkpoint is on the disk. It replaces one of the same size. */
  async put(size: number, note: SignedNote): Promise<void> {
    const { offset } = this.#file.end;
    await this.#file.append([checkpointRecord(size, Buffer.from(formatNote(note)))]);
    this.#note({ size, offset, bytes: this.#file.end.offset - offset });
    if (size === this.#places.at(-1)?.size) this.#latest = note;
    const live = this.#places.reduce((sum, { bytes }) => sum + bytes, MIN_REWRITE_BYTES);
    if (this.#places.length > MAX_KEPT) await this.#rewrite((at) => at % 2 === 0);
    else if (this.#file.end.offset > 2 * live) await this.#rewrite(() => true);
  }

  async close(): Promise<void> {
    await this.#file.close();
  }

  #note(place: Place): void {
    const at = this.#places.findLastIndex((kept) => kept.size <= place.size);
    if (this.#places[at]?.size === place.size) this.#places[at] = place;
    else this.#places.splice(at + 1, 0, place);
  }

  async #read({ size, offset, bytes }: Place): Promise<SignedNote> {
    const record = decodeWalRecord(Buffer.from(await this.#file.read(bytes, offset)), 0);
    if (record?.kind === WAL_KINDS.state && record.index === size) return parseNote(record.payload);
    throw damaged(checkpointPath(this.#directory), `the checkpoint of ${size} is not readable`);
  }

  /** Keeps the last one and those chosen, and removes replaced ones from the disk. */
  async #rewrite(isKept: (at: number) => boolean): Promise<void> {
    const path = checkpointPath(this.#directory);
    const last = this.#places.length - 1;
    const kept = this.#places.filter((_, at) => at === last || isKept(at));
    const file = await newFile(this.#files, path + TEMPORARY_SUFFIX, this.#origin);
    const places: Place[] = [];
    await closedOnFailure(file, async () => {
      for (const place of kept) {
        const { offset } = file.end;
        const note = Buffer.from(formatNote(await this.#read(place)));
        await file.append([checkpointRecord(place.size, note)]);
        places.push({ size: place.size, offset, bytes: file.end.offset - offset });
      }
      await this.#files.rename(path + TEMPORARY_SUFFIX, path);
      await this.#files.syncDirectory(this.#directory);
    });
    await this.#file.close();
    this.#file = file;
    this.#places = places;
  }
}

function checkpointPath(directory: string): string {
  return `${directory}/checkpoints.log`;
}

function checkpointRecord(index: number, payload: Uint8Array) {
  return { kind: WAL_KINDS.state, term: 0, index, payload };
}

function newFile(files: StorageFiles, path: string, origin: string): Promise<RecordFile> {
  const head = { payload: Buffer.from(JSON.stringify({ format: 1, origin })), index: 0 };
  return RecordFile.create(files, path, head, { chain: NO_CHAIN, growBytes: GROW_BYTES });
}

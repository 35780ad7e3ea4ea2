import {
  closedOnFailure,
  type StorageFile,
  type StorageFiles,
} from "@heddle/storage/storage-files";
import { decodeWalRecord, type StoredRecord, WAL_KINDS } from "@heddle/storage/wal-record";
import { TILE_WIDTH } from "../merkle/tile.ts";
import { EntryOffsets } from "./entry-offsets.ts";
import { HashLevels } from "./hash-levels.ts";
import { type PlacedRecord, type RecordChain, RecordFile, scanRecords } from "./record-file.ts";
import {
  checkSegmentHead,
  damaged,
  MAX_RECORD_BYTES,
  openSealed,
  readEntries,
  type SegmentShape,
  segmentHead,
  segmentPath,
  segmentsAmong,
} from "./segment.ts";
import { TreeWriter } from "./tree-writer.ts";

/** The bytes of entries that are read at a time. */
const PIECE_BYTES = 2 ** 20;

/** Where a log is, and what its files look like. */
export interface LogPlace {
  readonly files: StorageFiles;
  readonly directory: string;
  readonly shape: SegmentShape;
  /** How much a segment grows at a time. */
  readonly growBytes: number;
}

/** The segment that takes further entries. */
export interface ActiveSegment {
  readonly first: number;
  readonly path: string;
  readonly file: RecordFile;
  readonly offsets: EntryOffsets;
}

export interface RecoveredEvents {
  /** The first entry that is kept. */
  readonly first: number;
  readonly active: ActiveSegment;
  readonly levels: HashLevels;
  readonly tree: TreeWriter;
  /** The bytes of an unfinished write, which was removed. */
  readonly tornBytes: number;
}

/** Creates the segment that begins with that entry. */
export async function startSegment(
  { files, directory, shape, growBytes }: LogPlace,
  first: number,
  chain: RecordChain,
): Promise<ActiveSegment> {
  const path = segmentPath(directory, first);
  const head = { payload: segmentHead(shape, first), index: first };
  const file = await RecordFile.create(files, path, head, { chain, growBytes });
  return closedOnFailure(file, async () => {
    await files.syncDirectory(directory);
    return { first, path, file, offsets: new EntryOffsets(file.end.offset) };
  });
}

/**
 * Reads the last segment and repairs an unfinished write at its end. Throws `server_error` on damage
 * and `conflict` on the files of another log.
 */
export async function recoverEvents(place: LogPlace): Promise<RecoveredEvents> {
  const { files, directory, shape } = place;
  await files.makeDirectory(directory);
  const firsts = segmentsAmong(await files.list(directory));
  checkOrder(place, firsts);
  const last = firsts.at(-1);
  if (last === undefined) return startLog(place, 0, { crc: 0, group: 0 });
  const path = segmentPath(directory, last);
  const before = firsts.at(-2);
  const chain = before === undefined ? undefined : await sealedChain(place, before);
  const reader = await files.open(path, "buffered");
  try {
    const head = await readHead(reader);
    if (!head && (await isUnfinished(reader, path))) {
      if (firsts[0] === last && last > 0) throw damaged(path, "its head is not readable");
      await files.remove(path);
      return startLog(place, last, chain ?? { crc: 0, group: 0 }, firsts[0]);
    }
    checkSegmentHead(head, path, shape, last);
    if (chain && head?.previousCrc !== chain.crc) {
      throw damaged(path, `it does not continue ${segmentPath(directory, before as number)}`);
    }
    return await resumeLog(place, firsts, reader, head as StoredRecord);
  } finally {
    await reader.close();
  }
}

async function startLog(
  place: LogPlace,
  last: number,
  chain: RecordChain,
  first = last,
): Promise<RecoveredEvents> {
  const levels = await openLevels(place, last);
  return closedOnFailure(levels, async () => {
    const tree = await TreeWriter.after(last, levels);
    return {
      first,
      active: await startSegment(place, last, chain),
      levels,
      tree,
      tornBytes: 0,
    };
  });
}

async function resumeLog(
  place: LogPlace,
  firsts: readonly number[],
  reader: StorageFile,
  head: StoredRecord,
): Promise<RecoveredEvents> {
  const first = firsts.at(-1) as number;
  const path = segmentPath(place.directory, first);
  const levels = await openLevels(place, first);
  return closedOnFailure(levels, async () => {
    const tree = await TreeWriter.after(first, levels);
    const offsets = new EntryOffsets(head.stride);
    let isSealed = false;
    const from = { crc: head.previousCrc, group: head.group - 1, offset: 0 };
    const visit = (records: readonly PlacedRecord[]) => {
      const entries: Uint8Array[] = [];
      for (const { record, offset } of records) {
        if (record.kind === WAL_KINDS.snapshot) isSealed = true;
        if (record.kind !== WAL_KINDS.entry) continue;
        const next = tree.size + entries.length;
        if (record.index !== next) throw damaged(path, `it has no entry ${next}`);
        offsets.add(offset, record.stride);
        entries.push(record.payload);
      }
      tree.append(entries);
    };
    const scan = await scanRecords(reader, path, { maxRecordBytes: MAX_RECORD_BYTES, from, visit });
    const file = await RecordFile.resume(place.files, path, scan, place.growBytes);
    const active = { first, path, file, offsets };
    const known = { first: firsts[0] as number, levels, tree, tornBytes: scan.tornBytes };
    if (offsets.count < place.shape.width) return { ...known, active };
    const seal = () => sealSegment(place, active, levels, isSealed);
    return { ...known, active: await closedOnFailure(file, seal) };
  });
}

/** Finishes a full segment and starts the next one. */
export async function sealSegment(
  place: LogPlace,
  { first, file, offsets }: ActiveSegment,
  levels: HashLevels,
  isSealed = false,
): Promise<ActiveSegment> {
  if (!isSealed) await file.append([offsets.seal()]);
  await Promise.all([file.trim(), levels.seal()]);
  await file.close();
  return startSegment(place, first + place.shape.width, file.end);
}

function checkOrder({ directory, shape }: LogPlace, firsts: readonly number[]): void {
  const start = firsts[0] ?? 0;
  for (const [at, first] of firsts.entries()) {
    const expected = start + at * shape.width;
    if (first === expected && start % shape.width === 0) continue;
    const missing = segmentPath(directory, expected);
    throw damaged(directory, `it has ${segmentPath(directory, first)}, but not ${missing}`);
  }
}

async function sealedChain({ files, directory, shape }: LogPlace, first: number) {
  const sealed = await openSealed(files, segmentPath(directory, first), shape.width);
  await sealed.file.close();
  return sealed.chain;
}

async function readHead(file: StorageFile): Promise<StoredRecord | undefined> {
  return decodeWalRecord(Buffer.from(await file.read(MAX_RECORD_BYTES, 0)), 0);
}

/** Whether the file was created by a process that ended before its head was on the disk. */
async function isUnfinished(file: StorageFile, path: string): Promise<boolean> {
  // A file with whole groups of any number would be damaged, and the scan says so.
  const from = { crc: 0, group: -1, offset: 0 };
  await scanRecords(file, path, { maxRecordBytes: MAX_RECORD_BYTES, from, visit: () => undefined });
  return true;
}

/** The hashes of the segments before that entry, made again from the entries where files are gone. */
async function openLevels(place: LogPlace, sealed: number): Promise<HashLevels> {
  const { files, directory, shape } = place;
  const levels = new HashLevels(files, directory, shape.width, sealed);
  if (await levels.isComplete()) return levels;
  await levels.close();
  const rebuilt = new HashLevels(files, directory, shape.width, 0);
  const tree = await TreeWriter.after(0, rebuilt);
  return closedOnFailure(rebuilt, async () => {
    for (let first = 0; first < sealed; first += shape.width) {
      for await (const entries of sealedEntries(place, first)) tree.append(entries);
      await rebuilt.seal();
    }
    return rebuilt;
  });
}

/** The entries of a full segment, at most 256 at a time. */
async function* sealedEntries(
  { files, directory, shape }: LogPlace,
  first: number,
): AsyncGenerator<Uint8Array[], void> {
  const path = segmentPath(directory, first);
  const { file, offsets } = await openSealed(files, path, shape.width);
  try {
    for (let at = 0; at < shape.width; ) {
      const span = offsets.span(at, TILE_WIDTH, PIECE_BYTES);
      const entries = await readEntries(file, path, first + at, span);
      yield entries;
      at += entries.length;
    }
  } finally {
    await file.close();
  }
}

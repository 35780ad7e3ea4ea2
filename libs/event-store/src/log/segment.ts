import { AppError } from "@heddle/base/errors";
import {
  closedOnFailure,
  type StorageFile,
  type StorageFiles,
} from "@heddle/storage/storage-files";
import {
  decodeWalRecord,
  WAL_KINDS,
  type WalRecord,
  walRecordBytes,
} from "@heddle/storage/wal-record";
import { EntryOffsets } from "./entry-offsets.ts";
import type { RecordChain } from "./record-file.ts";

/** What all segments of a log agree on. */
export interface SegmentShape {
  /** The name of the log. */
  readonly origin: string;
  /** Entries of a full segment: a power of 256, so that its hashes are whole tiles. */
  readonly width: number;
}

/** The largest entry that a bundle of C2SP tlog-tiles can have. */
export const MAX_ENTRY_BYTES = 65_535;
export const MAX_RECORD_BYTES = walRecordBytes(MAX_ENTRY_BYTES);

const FORMAT = 1;
const SUFFIX = /^events-(\d{16})\.log$/;

interface SegmentHead extends SegmentShape {
  readonly format: number;
  readonly first: number;
}

export function segmentPath(directory: string, first: number): string {
  return `${directory}/events-${String(first).padStart(16, "0")}.log`;
}

/** The first sequence numbers of the segments among the names of a directory, in order. */
export function segmentsAmong(names: readonly string[]): number[] {
  return names.flatMap((name) => SUFFIX.exec(name)?.[1] ?? []).map(Number);
}

export function segmentHead({ origin, width }: SegmentShape, first: number): Buffer {
  const head: SegmentHead = { format: FORMAT, origin, width, first };
  return Buffer.from(JSON.stringify(head));
}

/** Throws `conflict` where the segment is another log's, and `server_error` where it is damaged. */
export function checkSegmentHead(
  record: WalRecord | undefined,
  path: string,
  shape: SegmentShape,
  expected: number,
): void {
  const { width, first } = readSegmentHead(record, path, shape.origin);
  if (first === expected && width === shape.width) return;
  throw damaged(path, `its head is of ${width} entries from ${first}`);
}

/** Throws `conflict` where the segment is another log's, and `server_error` where it is damaged. */
export function readSegmentHead(
  record: WalRecord | undefined,
  path: string,
  origin: string,
): SegmentHead {
  if (record?.kind !== WAL_KINDS.segment) throw damaged(path, "its head is not readable");
  const head = JSON.parse(Buffer.from(record.payload).toString()) as SegmentHead;
  if (head.format !== FORMAT) {
    throw new AppError(
      "conflict",
      `${path} has format ${head.format}; this program reads format ${FORMAT}. Use a newer one`,
    );
  }
  if (head.origin === origin) return head;
  const message = `${path} is of the log ${head.origin}, not of ${origin}. Give its own directory`;
  throw new AppError("conflict", message);
}

/** A full segment, open for reading. */
export interface SealedSegment {
  readonly file: StorageFile;
  readonly offsets: EntryOffsets;
  /** What the next segment continues. */
  readonly chain: RecordChain;
}

/** Opens a full segment by its last record. Throws `server_error` where that is damaged. */
export async function openSealed(
  files: StorageFiles,
  path: string,
  width: number,
): Promise<SealedSegment> {
  const file = await files.open(path, "read");
  return closedOnFailure(file, async () => {
    const bytes = walRecordBytes(EntryOffsets.sealBytes(width));
    const tail = Buffer.from(await file.read(bytes, (await file.size()) - bytes));
    const record = decodeWalRecord(tail, 0);
    const offsets = record && EntryOffsets.fromSeal(record, width);
    if (!offsets) throw damaged(path, "the list of its entries, at its end, is not readable");
    return { file, offsets, chain: { crc: record.crc, group: record.group } };
  });
}

/**
 * The entries between two positions, the first with that sequence number. Throws `server_error` at
 * the first that is damaged.
 */
export async function readEntries(
  file: Pick<StorageFile, "read">,
  path: string,
  first: number,
  { start, end }: { readonly start: number; readonly end: number },
): Promise<Uint8Array[]> {
  const bytes = Buffer.from(await file.read(end - start, start));
  const entries: Uint8Array[] = [];
  for (let at = 0; at < end - start; ) {
    const record = decodeWalRecord(bytes, at);
    const sequence = first + entries.length;
    if (record?.kind !== WAL_KINDS.entry || record.index !== sequence) {
      throw damaged(path, `the entry ${sequence} at byte ${start + at} is not readable`);
    }
    entries.push(record.payload);
    at += record.stride;
  }
  return entries;
}

export function damaged(path: string, why: string): AppError {
  return new AppError(
    "server_error",
    `${path} is damaged: ${why}. Restore the directory from a backup, or from another master`,
  );
}

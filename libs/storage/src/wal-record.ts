import { crc32 } from "node:zlib";

/**
 * One record of the write-ahead log, the same in all formats. Little-endian, padded with zeros to 8
 * bytes:
 *
 * | offset | size | field                                                          |
 * |--------|------|----------------------------------------------------------------|
 * | 0      | 4    | CRC-32 of every byte from offset 4 to the end of the payload    |
 * | 4      | 4    | the CRC field of the record before this one: the chain          |
 * | 8      | 4    | payload length, bytes                                          |
 * | 12     | 1    | kind                                                           |
 * | 13     | 1    | 1 where the record is the last of its group, else 0             |
 * | 14     | 2    | the upper bits of the group                                    |
 * | 16     | 4    | group: all records of one write carry the same, rising number   |
 * | 20     | 4    | term                                                           |
 * | 24     | 8    | index, as an IEEE double (exact up to 2^53)                     |
 * | 32     | n    | payload                                                        |
 */
export interface WalRecord {
  readonly kind: WalRecordKind;
  /** 0..2^32-1 */
  readonly term: number;
  /** 0..2^53-1 */
  readonly index: number;
  readonly payload: Uint8Array;
  /**
   * Only of records to be written: the first byte of the payload, before `payload`. It saves a
   * caller with the rest in place from copying it.
   */
  readonly prefixByte?: number | undefined;
}

/**
 * The kinds of record.
 *
 * - `segment` opens each file.
 * - `entry` is one log entry; `entries`, since format 3, is a run of them (`wal-entries.ts`).
 * - `state` holds the term, the commit index and, as payload, the vote.
 * - `snapshot` records that a snapshot covers the entries up to its index.
 */
export const WAL_KINDS = { segment: 1, entry: 2, state: 3, snapshot: 4, entries: 5 } as const;
export type WalRecordKind = (typeof WAL_KINDS)[keyof typeof WAL_KINDS];

/** The header of a record, before its payload. */
export const WAL_HEADER_BYTES = 32;
/** Bounds the effect of a damaged length field on the reader. */
export const WAL_MAX_PAYLOAD_BYTES = 64 * 2 ** 20;

/** A record read from a file, with its position and its links to its neighbours. */
export interface StoredRecord extends WalRecord {
  readonly crc: number;
  readonly previousCrc: number;
  readonly group: number;
  readonly endsGroup: boolean;
  /** Bytes from this record's start to the next one's. */
  readonly stride: number;
}

export function walRecordBytes(payloadBytes: number): number {
  return (WAL_HEADER_BYTES + payloadBytes + 7) & ~7;
}

const ZEROS = Buffer.alloc(64 * 1024);

/** The bytes of a record in the file. */
export function recordBytes({ payload, prefixByte }: WalRecord): number {
  return walRecordBytes(payload.byteLength + (prefixByte === undefined ? 0 : 1));
}

/** A buffer and a view of the same memory. */
export interface WalBuffer {
  readonly bytes: Buffer;
  readonly view: DataView;
}

/** Links a record to its predecessor and to the others of its group. */
export interface WalLink {
  readonly previousCrc: number;
  readonly group: number;
  readonly endsGroup: boolean;
}

/** Writes the record at `offset` and returns its CRC, which the next record's chain field takes. */
export function encodeWalRecord(
  buffer: WalBuffer,
  offset: number,
  record: WalRecord,
  link: WalLink,
): number {
  const end = writePayload(buffer.bytes, offset + WAL_HEADER_BYTES, record);
  return sealWalRecord(buffer, offset, { ...record, end }, link);
}

/**
 * Copies a record's payload to the offset, padded with zeros to 8 bytes; returns its end without
 * padding.
 */
export function writePayload(
  bytes: Buffer,
  offset: number,
  { payload, prefixByte }: WalRecord,
): number {
  let at = offset;
  if (prefixByte !== undefined) bytes[at++] = prefixByte;
  bytes.set(payload, at);
  const end = at + payload.byteLength;
  for (let pad = end; (pad & 7) !== 0; pad++) bytes[pad] = 0;
  return end;
}

/**
 * Writes the header of the record at `offset` whose payload is in place up to `end`; returns its
 * CRC.
 */
export function sealWalRecord(
  { bytes, view }: WalBuffer,
  offset: number,
  { kind, term, index, end }: { kind: WalRecordKind; term: number; index: number; end: number },
  link: WalLink,
): number {
  view.setUint32(offset + 4, link.previousCrc, true);
  view.setUint32(offset + 8, end - offset - WAL_HEADER_BYTES, true);
  bytes[offset + 12] = kind;
  bytes[offset + 13] = link.endsGroup ? 1 : 0;
  view.setUint16(offset + 14, Math.floor(link.group / 2 ** 32), true);
  view.setUint32(offset + 16, link.group % 2 ** 32, true);
  view.setUint32(offset + 20, term, true);
  view.setFloat64(offset + 24, index, true);
  const crc = crc32(bytes.subarray(offset + 4, end));
  view.setUint32(offset, crc, true);
  return crc;
}

/** The record at `offset`, or undefined if the bytes are not a whole, valid record. */
export function decodeWalRecord(from: Buffer, offset: number): StoredRecord | undefined {
  if (offset + WAL_HEADER_BYTES > from.byteLength) return undefined;
  const kind = from[offset + 12] as WalRecordKind;
  if (kind < WAL_KINDS.segment || kind > WAL_KINDS.entries) return undefined;
  const length = from.readUInt32LE(offset + 8);
  if (length > WAL_MAX_PAYLOAD_BYTES) return undefined;
  const end = offset + WAL_HEADER_BYTES + length;
  if (end > from.byteLength) return undefined;
  const crc = from.readUInt32LE(offset);
  if (crc32(from.subarray(offset + 4, end)) !== crc) return undefined;
  return {
    kind,
    crc,
    previousCrc: from.readUInt32LE(offset + 4),
    endsGroup: from[offset + 13] === 1,
    group: groupAt(from, offset),
    term: from.readUInt32LE(offset + 20),
    index: from.readDoubleLE(offset + 24),
    payload: from.subarray(offset + WAL_HEADER_BYTES, end),
    stride: walRecordBytes(length),
  };
}

function groupAt(from: Buffer, offset: number): number {
  return from.readUInt16LE(offset + 14) * 2 ** 32 + from.readUInt32LE(offset + 16);
}

/**
 * The group of a whole, valid record of a group in (after, until], at any offset of the bytes;
 * undefined if there is none. Cheap where nearly all records are of other groups.
 */
export function findGroup(bytes: Buffer, after: number, until: number): number | undefined {
  // No record begins where its kind would be one of the zeros at the end, which are most of a segment.
  const kindsEnd = Math.min(lastNonZero(bytes) + 1, bytes.byteLength - WAL_HEADER_BYTES + 13);
  for (let offset = 0; offset + 12 < kindsEnd; offset += 8) {
    if (bytes[offset + 12] === 0) continue;
    const group = groupAt(bytes, offset);
    if (group > after && group <= until && decodeWalRecord(bytes, offset)) return group;
  }
  return undefined;
}

/** The offset of the last byte that is not 0, or -1. Blocks of zeros are compared by native code. */
export function lastNonZero(bytes: Buffer): number {
  const block = ZEROS.byteLength;
  let end = bytes.byteLength;
  while (end >= block && bytes.compare(ZEROS, 0, block, end - block, end) === 0) end -= block;
  while (end > 0 && bytes[end - 1] === 0) end--;
  return end - 1;
}

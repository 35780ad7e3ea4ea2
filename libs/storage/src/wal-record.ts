import { crc32 } from "node:zlib";

/**
 * One record of the write-ahead log, format v1. Little-endian, padded with zeros to 8 bytes:
 *
 * | offset | size | field                                                          |
 * |--------|------|----------------------------------------------------------------|
 * | 0      | 4    | CRC-32 of every byte from offset 4 to the end of the payload    |
 * | 4      | 4    | the CRC field of the record before this one: the chain          |
 * | 8      | 4    | payload length, bytes                                          |
 * | 12     | 1    | kind                                                           |
 * | 13     | 1    | 1 where the record is the last of its group, else 0             |
 * | 14     | 2    | zero                                                           |
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
}

/**
 * `segment` opens each file; `entry` is one log entry; `state` holds the term, the commit index and,
 * as payload, the vote; `snapshot` says that entries up to its index are covered by a snapshot.
 */
export const WAL_KINDS = { segment: 1, entry: 2, state: 3, snapshot: 4 } as const;
export type WalRecordKind = (typeof WAL_KINDS)[keyof typeof WAL_KINDS];

const WAL_HEADER_BYTES = 32;
/** Bounds what a damaged length field can make the reader believe. */
export const WAL_MAX_PAYLOAD_BYTES = 64 * 2 ** 20;

/** A record as it was read, with what recovery needs to judge its neighbours. */
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

/** Writes the record at `offset` and returns its CRC, which the next record's chain field takes. */
export function encodeWalRecord(
  into: Buffer,
  offset: number,
  record: WalRecord,
  link: { previousCrc: number; group: number; endsGroup: boolean },
): number {
  const length = record.payload.byteLength;
  const end = offset + WAL_HEADER_BYTES + length;
  into.writeUInt32LE(link.previousCrc, offset + 4);
  into.writeUInt32LE(length, offset + 8);
  into[offset + 12] = record.kind;
  into[offset + 13] = link.endsGroup ? 1 : 0;
  into.writeUInt16LE(0, offset + 14);
  into.writeUInt32LE(link.group, offset + 16);
  into.writeUInt32LE(record.term, offset + 20);
  into.writeDoubleLE(record.index, offset + 24);
  into.set(record.payload, offset + WAL_HEADER_BYTES);
  into.fill(0, end, offset + walRecordBytes(length));
  const crc = crc32(into.subarray(offset + 4, end));
  into.writeUInt32LE(crc, offset);
  return crc;
}

/** The record at `offset`, or undefined where the bytes there are not a whole, valid record. */
export function decodeWalRecord(from: Buffer, offset: number): StoredRecord | undefined {
  if (offset + WAL_HEADER_BYTES > from.byteLength) return undefined;
  const kind = from[offset + 12] as WalRecordKind;
  if (kind < WAL_KINDS.segment || kind > WAL_KINDS.snapshot) return undefined;
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
    group: from.readUInt32LE(offset + 16),
    term: from.readUInt32LE(offset + 20),
    index: from.readDoubleLE(offset + 24),
    payload: from.subarray(offset + WAL_HEADER_BYTES, end),
    stride: walRecordBytes(length),
  };
}

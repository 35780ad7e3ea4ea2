import {
  recordBytes,
  type StoredRecord,
  sealWalRecord,
  WAL_HEADER_BYTES,
  WAL_KINDS,
  type WalBuffer,
  type WalLink,
  type WalRecord,
  writePayload,
} from "./wal-record.ts";

/**
 * A run of log entries as one record with one checksum, which for small entries is most of the cost
 * of a record. The payload holds, for each entry, padded with zeros to 8 bytes:
 *
 * | offset | size | field                                    |
 * |--------|------|------------------------------------------|
 * | 0      | 4    | length of the entry's own payload, bytes |
 * | 4      | 4    | term                                     |
 * | 8      | 8    | index, as an IEEE double                 |
 * | 16     | n    | the entry's own payload                  |
 *
 * The record's own term and index are those of the last entry.
 */
export function encodeEntries(
  buffer: WalBuffer,
  offset: number,
  records: readonly WalRecord[],
  link: WalLink,
): { crc: number; end: number } {
  const { bytes, view } = buffer;
  let at = offset + WAL_HEADER_BYTES;
  for (const record of records) {
    const start = at + ENTRY_HEADER_BYTES;
    const end = writePayload(bytes, start, record);
    view.setUint32(at, end - start, true);
    view.setUint32(at + 4, record.term, true);
    view.setFloat64(at + 8, record.index, true);
    at = (end + 7) & ~7;
  }
  const { term, index } = records[records.length - 1] as WalRecord;
  const crc = sealWalRecord(
    buffer,
    offset,
    { kind: WAL_KINDS.entries, term, index, end: at },
    link,
  );
  return { crc, end: at };
}

const ENTRY_HEADER_BYTES = 16;
/** A longer run becomes several records, so that no record exceeds what a reader accepts. */
const MAX_RUN_BYTES = 2 ** 20;

/** The end of the run of entries from `start` that fits into one record; at least `start` + 1. */
export function endOfRun(records: readonly WalRecord[], start: number): number {
  let bytes = 0;
  let end = start;
  for (; end < records.length; end++) {
    const record = records[end] as WalRecord;
    // With their own headers they are larger than in a run, which is the safe side.
    bytes += recordBytes(record);
    if (record.kind !== WAL_KINDS.entry || bytes > MAX_RUN_BYTES) break;
  }
  return Math.max(end, start + 1);
}

/** The log entries of a whole record of either kind; undefined if its payload is no run. */
export function entriesOf(record: StoredRecord): readonly WalRecord[] | undefined {
  if (record.kind === WAL_KINDS.entry) return [record];
  if (record.kind !== WAL_KINDS.entries) return [];
  const { payload } = record;
  const view = new DataView(payload.buffer, payload.byteOffset, payload.byteLength);
  const entries: WalRecord[] = [];
  for (let at = 0; at < payload.byteLength; ) {
    const start = at + ENTRY_HEADER_BYTES;
    if (start > payload.byteLength) return undefined;
    const end = start + view.getUint32(at, true);
    if (end > payload.byteLength) return undefined;
    entries.push({
      kind: WAL_KINDS.entry,
      term: view.getUint32(at + 4, true),
      index: view.getFloat64(at + 8, true),
      payload: payload.subarray(start, end),
    });
    at = (end + 7) & ~7;
  }
  return entries;
}

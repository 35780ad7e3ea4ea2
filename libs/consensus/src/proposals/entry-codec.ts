import type { Entry } from "@heddle/raft/log/entry";
import { WAL_KINDS, type WalRecord } from "@heddle/storage/wal-record";

const TYPES: readonly Entry["type"][] = ["EntryNormal", "EntryConfChange", "EntryConfChangeV2"];

/** An entry as a record of the write-ahead log: its payload is one byte of type and the data. */
export function entryRecord({ term, index, type, data }: Entry): WalRecord {
  return { kind: WAL_KINDS.entry, term, index, payload: data, prefixByte: TYPES.indexOf(type) };
}

/** Data is copied into pieces of this size, which are far cheaper than one buffer for each entry. */
const SLAB_BYTES = 256 * 1024;

/** The entries of records that were read, with data of their own: records are views of segments. */
export function entriesOfRecords(records: readonly WalRecord[]): Entry[] {
  let slab = new Uint8Array(0);
  let at = 0;
  return records.map(({ term, index, payload }) => {
    const type = TYPES[payload[0] as number];
    if (!type) throw new Error(`entry ${index} of the log has the unknown type ${payload[0]}`);
    const bytes = payload.byteLength - 1;
    if (at + bytes > slab.byteLength) {
      slab = new Uint8Array(Math.max(SLAB_BYTES, bytes));
      at = 0;
    }
    const data = slab.subarray(at, at + bytes);
    data.set(payload.subarray(1));
    at += bytes;
    return { term, index, type, data };
  });
}

/** Identifies a proposal; the proposer's replica finds the caller to answer by it. */
export interface ProposalId {
  readonly node: number;
  /** The process of that node: rises with every start. */
  readonly incarnation: number;
  readonly sequence: number;
}

/** The header before a command in an entry's data. */
export const PROPOSAL_HEADER_BYTES = 16;

/** Who proposed, in the first bytes of an entry's data: node u32, incarnation u32, sequence f64, little-endian. */
export function writeProposalId(into: DataView, offset: number, id: ProposalId): void {
  into.setUint32(offset, id.node, true);
  into.setUint32(offset + 4, id.incarnation, true);
  into.setFloat64(offset + 8, id.sequence, true);
}

/** A command with its proposer before it. */
export function encodeProposal(id: ProposalId, command: Uint8Array): Uint8Array {
  const data = new Uint8Array(PROPOSAL_HEADER_BYTES + command.byteLength);
  writeProposalId(new DataView(data.buffer), 0, id);
  data.set(command, PROPOSAL_HEADER_BYTES);
  return data;
}

/** The command of an entry; undefined for data that is no proposal, such as a new leader's first entry. */
export function commandOf(data: Uint8Array): Uint8Array | undefined {
  return data.byteLength < PROPOSAL_HEADER_BYTES ? undefined : data.subarray(PROPOSAL_HEADER_BYTES);
}

const number = new DataView(new ArrayBuffer(8));

/** The sequence number of a proposal if it is that proposer's. Made for each entry: no view of it is. */
export function sequenceOf(
  data: Uint8Array,
  { node, incarnation }: Omit<ProposalId, "sequence">,
): number | undefined {
  if (uint32(data, 0) !== node || uint32(data, 4) !== incarnation) return undefined;
  number.setUint32(0, uint32(data, 8), true);
  number.setUint32(4, uint32(data, 12), true);
  return number.getFloat64(0, true);
}

/** Without a view, which would be made for each entry. */
export function uint32(data: Uint8Array, at: number): number {
  const high = ((data[at + 3] as number) << 8) | (data[at + 2] as number);
  return ((high << 16) | ((data[at + 1] as number) << 8) | (data[at] as number)) >>> 0;
}

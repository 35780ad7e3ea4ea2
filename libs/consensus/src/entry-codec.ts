import type { Entry } from "@heddle/raft/entry";
import { WAL_KINDS, type WalRecord } from "@heddle/storage/wal-record";

const TYPES: readonly Entry["type"][] = ["EntryNormal", "EntryConfChange", "EntryConfChangeV2"];

/** An entry as a record of the write-ahead log: its payload is one byte of type and the data. */
export function entryRecord({ term, index, type, data }: Entry): WalRecord {
  return { kind: WAL_KINDS.entry, term, index, payload: data, lead: TYPES.indexOf(type) };
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

/** Who proposed a command: tells the proposer's replica which of its callers to answer. */
export interface ProposalId {
  readonly node: number;
  /** The process of that node: rises with every start. */
  readonly incarnation: number;
  readonly sequence: number;
}

const PROPOSAL_HEADER_BYTES = 16;

/** A command with its proposer before it: node u32, incarnation u32, sequence f64, little-endian. */
export function encodeProposal(id: ProposalId, command: Uint8Array): Uint8Array {
  const data = new Uint8Array(PROPOSAL_HEADER_BYTES + command.byteLength);
  const view = new DataView(data.buffer);
  view.setUint32(0, id.node, true);
  view.setUint32(4, id.incarnation, true);
  view.setFloat64(8, id.sequence, true);
  data.set(command, PROPOSAL_HEADER_BYTES);
  return data;
}

/** Undefined for data that is no proposal, such as a new leader's empty first entry. */
export function decodeProposal(
  data: Uint8Array,
): { id: ProposalId; command: Uint8Array } | undefined {
  if (data.byteLength < PROPOSAL_HEADER_BYTES) return undefined;
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const id = {
    node: view.getUint32(0, true),
    incarnation: view.getUint32(4, true),
    sequence: view.getFloat64(8, true),
  };
  return { id, command: data.subarray(PROPOSAL_HEADER_BYTES) };
}

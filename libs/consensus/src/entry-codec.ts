import type { Entry } from "@heddle/raft/entry";
import { WAL_KINDS, type WalRecord } from "@heddle/storage/wal-record";

const TYPES: readonly Entry["type"][] = ["EntryNormal", "EntryConfChange", "EntryConfChangeV2"];

/** An entry as a record of the write-ahead log: its payload is one byte of type and the data. */
export function entryRecord({ term, index, type, data }: Entry): WalRecord {
  const payload = new Uint8Array(1 + data.byteLength);
  payload[0] = TYPES.indexOf(type);
  payload.set(data, 1);
  return { kind: WAL_KINDS.entry, term, index, payload };
}

export function entryOfRecord({ term, index, payload }: WalRecord): Entry {
  const type = TYPES[payload[0] as number];
  if (!type) throw new Error(`entry ${index} of the log has the unknown type ${payload[0]}`);
  // Copied, since the record is a view of a whole segment.
  return { term, index, type, data: payload.slice(1) };
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

import type { Entry } from "../log/entry.ts";
import { NO_DATA } from "../log/entry.ts";
import { NO_NODE, type Snapshot } from "./state.ts";

/**
 * The kinds of message, with etcd's names. Local ones (see `isLocalMessage`) never cross the
 * network.
 */
export type MessageType =
  | "MsgHup"
  | "MsgBeat"
  | "MsgProp"
  | "MsgApp"
  | "MsgAppResp"
  | "MsgVote"
  | "MsgVoteResp"
  | "MsgSnap"
  | "MsgHeartbeat"
  | "MsgHeartbeatResp"
  | "MsgUnreachable"
  | "MsgSnapStatus"
  | "MsgCheckQuorum"
  | "MsgTransferLeader"
  | "MsgTimeoutNow"
  | "MsgReadIndex"
  | "MsgReadIndexResp"
  | "MsgPreVote"
  | "MsgPreVoteResp"
  | "MsgStorageAppend"
  | "MsgStorageAppendResp"
  | "MsgStorageApply"
  | "MsgStorageApplyResp"
  | "MsgForgetLeader";

/** The target of MsgStorageAppend, which makes the log durable. */
export const APPEND_THREAD: number = Number.MAX_SAFE_INTEGER;

/** The target of MsgStorageApply, which applies committed entries. */
export const APPLY_THREAD: number = Number.MAX_SAFE_INTEGER - 1;

/** One message; the type decides which fields have a meaning, the others are zero or empty. */
export interface Message {
  readonly type: MessageType;
  readonly to: number;
  readonly from: number;
  /** The sender's term (the term campaigned for in votes); 0 in local and forwarded messages. */
  readonly term: number;
  /** The term of the entry at `index`. */
  readonly logTerm: number;
  /** MsgApp: the entry before `entries`; votes: the last entry; responses: the acknowledged one. */
  readonly index: number;
  readonly entries: readonly Entry[];
  readonly commit: number;
  /** MsgStorageAppend only: with `term` and `commit` the hard state to write, or all three 0. */
  readonly vote: number;
  readonly snapshot: Snapshot | undefined;
  readonly reject: boolean;
  /** In the rejection of an append: where the logs may match; its term is `logTerm`. */
  readonly rejectHint: number;
  /**
   * Links a heartbeat's answer to the reads that it confirms; marks a vote request of a transfer.
   */
  readonly context: Uint8Array;
  /** Storage messages only: the messages to deliver once the write is done. */
  readonly responses: readonly Message[];
}

/** The arguments of a message: type and target, and any other fields. */
export type MessageInit = Pick<Message, "type" | "to"> & Partial<Message>;

/** A message with all fields; sender and term may be separate arguments. */
export function createMessage(
  init: MessageInit,
  from: number = init.from ?? NO_NODE,
  term: number = init.term ?? 0,
): Message {
  return {
    type: init.type,
    to: init.to,
    from,
    term,
    logTerm: init.logTerm ?? 0,
    index: init.index ?? 0,
    entries: init.entries ?? [],
    commit: init.commit ?? 0,
    vote: init.vote ?? NO_NODE,
    snapshot: init.snapshot,
    reject: init.reject ?? false,
    rejectHint: init.rejectHint ?? 0,
    context: init.context ?? NO_DATA,
    responses: init.responses ?? [],
  };
}

const LOCAL: ReadonlySet<MessageType> = new Set<MessageType>([
  "MsgHup",
  "MsgBeat",
  "MsgUnreachable",
  "MsgSnapStatus",
  "MsgCheckQuorum",
  "MsgStorageAppend",
  "MsgStorageAppendResp",
  "MsgStorageApply",
  "MsgStorageApplyResp",
]);

const RESPONSES: ReadonlySet<MessageType> = new Set<MessageType>([
  "MsgAppResp",
  "MsgVoteResp",
  "MsgHeartbeatResp",
  "MsgUnreachable",
  "MsgReadIndexResp",
  "MsgPreVoteResp",
  "MsgStorageAppendResp",
  "MsgStorageApplyResp",
]);

/** True for kinds that a node sends to itself only; one from the network is an attack or a bug. */
export function isLocalMessage(type: MessageType): boolean {
  return LOCAL.has(type);
}

/** True for kinds that make sense only from a member. */
export function isResponse(type: MessageType): boolean {
  return RESPONSES.has(type);
}

/** True for the ids of the storage threads, which are no nodes. */
export function isStorageThread(id: number): boolean {
  return id === APPEND_THREAD || id === APPLY_THREAD;
}

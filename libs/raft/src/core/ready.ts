import type { Entry } from "../log/entry.ts";
import { APPEND_THREAD, APPLY_THREAD, createMessage, type Message } from "./message.ts";
import type { Raft } from "./raft.ts";
import type { HardState, ReadState, Snapshot, SoftState } from "./state.ts";

/**
 * A batch of work for the driver. Without asyncStorageWrites the order is:
 *
 * - write `snapshot`, `entries` and `hardState` (durably if `mustSync`);
 * - send `messages`;
 * - apply `committedEntries`;
 * - call `advance`.
 *
 * With asyncStorageWrites, all fields but `messages` are for information.
 */
export interface Ready {
  /** Present if it changed. */
  readonly softState: SoftState | undefined;
  /** Present if it changed; to be written. */
  readonly hardState: HardState | undefined;
  /** Reads that may be served once their index is applied. */
  readonly readStates: readonly ReadState[];
  /** To be written, in place of the log entries at and after the first of them. */
  readonly entries: readonly Entry[];
  /** To be written in place of the log; never together with entries or committed entries. */
  readonly snapshot: Snapshot | undefined;
  /** To be applied to the state machine, in order. */
  readonly committedEntries: readonly Entry[];
  /** To be sent, or with asyncStorageWrites also passed to the storage threads. */
  readonly messages: readonly Message[];
  /**
   * False if a crash may lose the hard state and entries of this batch: at most the commit index
   * changed, which can be learned again. Always made durable are a snapshot, and the commit index
   * before a committed conf change is applied.
   */
  readonly mustSync: boolean;
}

/** The message that makes the append thread write the batch, if it contains anything. */
export function storageAppend(raft: Raft, ready: Ready): Message | undefined {
  const { entries, hardState, snapshot } = ready;
  const responses = [...raft.messagesAfterAppend];
  if (entries.length === 0 && !hardState && !snapshot && responses.length === 0) return undefined;
  // The acknowledgement is last: the leader's own vote for an entry is cheaper to count while the
  // entry is still in the unstable log.
  const acknowledgement = storageAppendResponse(raft, ready);
  if (acknowledgement) responses.push(acknowledgement);
  const { term = 0, vote = 0, commit = 0 } = hardState ?? {};
  return createMessage({
    type: "MsgStorageAppend",
    to: APPEND_THREAD,
    from: raft.id,
    term,
    vote,
    commit,
    entries,
    snapshot,
    responses,
  });
}

/**
 * The message that reports this write and all before as durable, if the node needs it. It names the
 * last entry of the whole log and carries the term.
 *
 * - Entries may be replaced during their write and return, under a third leader, with the same
 *   index and term. The acknowledgement of the first write would then cover one still in progress.
 * - A log is only cut under a new term, so a node ignores acknowledgements of earlier terms.
 * - Each new term causes a write, which names the last entry even if it holds none. So the last
 *   acknowledgement is never ignored.
 */
export function storageAppendResponse(raft: Raft, ready: Ready): Message | undefined {
  const { snapshot } = ready;
  const hasEntries = raft.log.hasUnstableEntries;
  if (!hasEntries && !snapshot) return undefined;
  const { index, term: logTerm } = hasEntries ? raft.log.lastId : { index: 0, term: 0 };
  return createMessage({
    type: "MsgStorageAppendResp",
    to: raft.id,
    from: APPEND_THREAD,
    term: raft.term,
    index,
    logTerm,
    snapshot,
  });
}

/** The message that makes the apply thread apply the committed entries, if there are any. */
export function storageApply(raft: Raft, ready: Ready): Message | undefined {
  const { committedEntries: entries } = ready;
  const response = storageApplyResponse(raft, ready);
  if (!response) return undefined;
  return createMessage({
    type: "MsgStorageApply",
    to: APPLY_THREAD,
    from: raft.id,
    entries,
    responses: [response],
  });
}

/** The message that reports the committed entries of the batch as applied, if there are any. */
export function storageApplyResponse(raft: Raft, ready: Ready): Message | undefined {
  const { committedEntries: entries } = ready;
  if (entries.length === 0) return undefined;
  return createMessage({ type: "MsgStorageApplyResp", to: raft.id, from: APPLY_THREAD, entries });
}

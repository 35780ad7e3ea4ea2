import type { Entry } from "../log/entry.ts";
import { APPEND_THREAD, APPLY_THREAD, createMessage, type Message } from "./message.ts";
import type { Raft } from "./raft.ts";
import type { HardState, ReadState, Snapshot, SoftState } from "./state.ts";

/**
 * A batch of work for the driver. Without asyncStorageWrites the order is: write `snapshot`,
 * `entries` and `hardState` (durably if `mustSync`), then send `messages`, then apply
 * `committedEntries`, then call `advance`. With it, all but `messages` is for information.
 */
export interface Ready {
  /** Present if it changed. */
  readonly softState: SoftState | undefined;
  /** Present if it changed; to be written. */
  readonly hardState: HardState | undefined;
  /** Reads that may be served once their index is applied. */
  readonly readStates: readonly ReadState[];
  /** To be written, in place of what the log has at and after the first of them. */
  readonly entries: readonly Entry[];
  /** To be written in place of the log; never together with entries or committed entries. */
  readonly snapshot: Snapshot | undefined;
  /** To be applied to the state machine, in order. */
  readonly committedEntries: readonly Entry[];
  /** To be sent, or with asyncStorageWrites also handed to the storage threads. */
  readonly messages: readonly Message[];
  /**
   * False if a crash may lose the hard state and entries of this batch: at most the commit index
   * changed, which can be learned again. A snapshot is made durable in any case, and so is the
   * commit index before a conf change among the committed entries is applied.
   */
  readonly mustSync: boolean;
}

/** The message that has the append thread write what the batch holds, if that is anything. */
export function storageAppend(raft: Raft, ready: Ready): Message | undefined {
  const { entries, hardState, snapshot } = ready;
  const responses = [...raft.messagesAfterAppend];
  if (entries.length === 0 && !hardState && !snapshot && responses.length === 0) return undefined;
  // The acknowledgement comes last: the leader's own vote for an entry is cheaper to count while
  // the entry is still in the unstable log.
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
 * What tells the node that this write, and all before, are durable, if it needs to hear of it.
 *
 * It names the last entry of the whole log and bears the term. Entries may be replaced while they
 * are being written and then come back, under a third leader, with the index and term they had; an
 * acknowledgement of the first write would then cover for one still in progress. As a log is only
 * ever cut under a new term, a node ignores acknowledgements of earlier terms; and as each new term
 * causes a write, which names the last entry even if it holds none, the last one is not ignored.
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

/** The message that has the apply thread apply the batch's committed entries, if there are any. */
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

/** What tells the node that the batch's committed entries are applied, if there are any. */
export function storageApplyResponse(raft: Raft, ready: Ready): Message | undefined {
  const { committedEntries: entries } = ready;
  if (entries.length === 0) return undefined;
  return createMessage({ type: "MsgStorageApplyResp", to: raft.id, from: APPLY_THREAD, entries });
}

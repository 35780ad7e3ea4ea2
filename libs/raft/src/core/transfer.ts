import type { Progress } from "../tracker/progress.ts";
import type { Raft } from "./raft.ts";
import { sendAppend } from "./replication.ts";
import { NO_NODE } from "./state.ts";

/** Transfers leadership to a member as soon as its log is complete (Raft thesis, section 3.10). */
export function transferLeadership(raft: Raft, peer: number, progress: Progress): void {
  const { trace, stamp } = raft;
  if (progress.isLearner) {
    trace?.({ kind: "transferToLearner", ...stamp, peer });
    return;
  }
  if (raft.leadTransferee === peer) {
    trace?.({ kind: "transferRepeated", ...stamp, peer });
    return;
  }
  if (raft.leadTransferee !== NO_NODE) {
    trace?.({ kind: "transferAborted", ...stamp, peer: raft.leadTransferee });
    raft.leadTransferee = NO_NODE;
  }
  if (peer === raft.id) {
    trace?.({ kind: "transferToSelf", ...stamp, peer });
    return;
  }
  trace?.({ kind: "transferStarted", ...stamp, peer });
  // The transfer has one election timeout; then the leader accepts proposals again.
  raft.electionElapsed = 0;
  raft.leadTransferee = peer;
  if (progress.match === raft.log.lastIndex) {
    raft.send({ type: "MsgTimeoutNow", to: peer });
    trace?.({ kind: "timeoutNowSentAtOnce", ...stamp, peer });
  } else {
    sendAppend(raft, peer, true);
  }
}

/**
 * Makes a leader that lost its vote transfer leadership to the voter with the longest log. If it
 * stopped instead, the voters might not know that its removal is committed, and still need its
 * vote.
 */
export function handOverIfRemoved(raft: Raft): void {
  const { voters } = raft.tracker.config;
  if (!raft.config.handOverOnRemoval || raft.leadTransferee !== NO_NODE) return;
  if (voters.incoming.has(raft.id) || voters.outgoing.has(raft.id)) return;
  let best: { readonly id: number; readonly progress: Progress } | undefined;
  for (const id of voters.incoming) {
    const progress = raft.tracker.get(id);
    if (!progress?.recentActive) continue;
    if (!best || progress.match > best.progress.match) best = { id, progress };
  }
  if (best) transferLeadership(raft, best.id, best.progress);
}

import type { Progress } from "../tracker/progress.ts";
import type { Message } from "./message.ts";
import type { Raft } from "./raft.ts";
import { handleReadAck, releasePostponedReads } from "./reads.ts";
import { broadcastAppend, maybeCommit, sendAppend } from "./replication.ts";

/** Processes a member's answer to an append or a snapshot, or the leader's own. */
export function handleAppendResponse(raft: Raft, message: Message, progress: Progress): void {
  progress.recentActive = true;
  if (message.reject) handleRejection(raft, message, progress);
  else handleAcknowledgement(raft, message, progress);
}

/**
 * Finds where the logs may match and sends from there. The member's hint is its last entry whose
 * term the leader's log could have at the probed index. Below it, entries here of a higher term
 * cannot match either, so it takes at most one probe per term.
 */
function handleRejection(raft: Raft, message: Message, progress: Progress): void {
  const { from, index } = message;
  const hint = { index: message.rejectHint, term: message.logTerm };
  raft.trace?.({ kind: "rejectionReceived", ...raft.stamp, from, index, hint });
  const next =
    hint.term > 0 ? raft.log.findConflictByTerm(hint.index, hint.term).index : hint.index;
  if (!progress.maybeDecreaseTo(index, next)) return;
  raft.trace?.({ kind: "progressDecreased", ...raft.stamp, to: from, progress });
  if (progress.state === "replicate") progress.becomeProbe();
  sendAppend(raft, from, true);
}

function handleAcknowledgement(raft: Raft, message: Message, progress: Progress): void {
  const { from, index } = message;
  // An acknowledgement that is not new still proves that a probed member is reachable again.
  const isUpdated = progress.maybeUpdate(index);
  if (!isUpdated && !(progress.match === index && progress.state === "probe")) return;
  advanceState(raft, message, progress);
  if (maybeCommit(raft)) {
    releasePostponedReads(raft);
    broadcastAppend(raft);
  } else if (from !== raft.id && progress.canBumpCommit(raft.log.committed)) {
    sendAppend(raft, from, true);
  }
  if (from !== raft.id) {
    while (sendAppend(raft, from, false)) {
      // The window may have opened for more than one message.
    }
  }
  if (from === raft.leadTransferee && progress.match === raft.log.lastIndex) {
    raft.trace?.({ kind: "timeoutNowSent", ...raft.stamp, peer: from });
    raft.send({ type: "MsgTimeoutNow", to: from });
  }
}

function advanceState(raft: Raft, message: Message, progress: Progress): void {
  if (progress.state === "probe") {
    progress.becomeReplicate();
  } else if (progress.state === "replicate") {
    progress.inflights.freeUpTo(message.index);
  } else if (progress.match + 1 >= raft.log.firstIndex) {
    // Any snapshot that reaches the leader's log ends the wait, not only the one sent.
    raft.trace?.({ kind: "snapshotRecovered", ...raft.stamp, to: message.from, progress });
    progress.becomeProbe();
    progress.becomeReplicate();
  }
}

/** Processes a heartbeat's answer: the member is alive, so appends resume. */
export function handleHeartbeatResponse(raft: Raft, message: Message, progress: Progress): void {
  progress.recentActive = true;
  progress.appendsPaused = false;
  if (progress.match < raft.log.lastIndex || progress.state === "probe") {
    sendAppend(raft, message.from, true);
  }
  handleReadAck(raft, message);
}

/** Processes the driver's report on a snapshot that it sent. */
export function handleSnapshotStatus(raft: Raft, message: Message, progress: Progress): void {
  if (progress.state !== "snapshot") return;
  // A failed snapshot must not count as delivered, so it is dropped first.
  if (message.reject) progress.pendingSnapshot = 0;
  progress.becomeProbe();
  const kind = message.reject ? "snapshotFailed" : "snapshotSucceeded";
  raft.trace?.({ kind, ...raft.stamp, to: message.from, progress });
  // The next append waits for the member's own answer, or for a heartbeat's.
  progress.appendsPaused = true;
}

/** Processes the driver's report of a lost message; appends in flight may be lost too. */
export function handleUnreachable(raft: Raft, message: Message, progress: Progress): void {
  if (progress.state === "replicate") progress.becomeProbe();
  raft.trace?.({ kind: "unreachable", ...raft.stamp, to: message.from, progress });
}

import { restoreConfState } from "../membership/membership.ts";
import type { Message } from "./message.ts";
import type { Raft } from "./raft.ts";
import { isMember, NO_NODE, type Snapshot } from "./state.ts";

/** Processes entries from the leader of this term, and acknowledges or rejects them. */
export function handleAppend(raft: Raft, message: Message): void {
  const { log } = raft;
  const { from: to, index, logTerm, entries } = message;
  if (index < log.committed) {
    raft.send({ type: "MsgAppResp", to, index: log.committed });
    return;
  }
  const last = log.maybeAppend({ previous: { index, term: logTerm }, entries }, message.commit);
  if (last !== undefined) {
    raft.send({ type: "MsgAppResp", to, index: last });
    return;
  }
  raft.trace?.({
    kind: "appendRejected",
    ...raft.stamp,
    index,
    ours: log.termOrZero(index),
    theirs: logTerm,
    from: to,
  });
  // The leader's log has no term above logTerm up to this index, so no entry here with a higher
  // term can match. The hint skips all of them at once.
  const hint = log.findConflictByTerm(Math.min(index, log.lastIndex), logTerm);
  raft.send({
    type: "MsgAppResp",
    to,
    index,
    reject: true,
    rejectHint: hint.index,
    logTerm: hint.term,
  });
}

/** Processes a heartbeat from the leader of this term. */
export function handleHeartbeat(raft: Raft, message: Message): void {
  raft.log.commitTo(message.commit);
  raft.send({ type: "MsgHeartbeatResp", to: message.from, context: message.context });
}

/** Processes a snapshot from the leader of this term; an old or missing one is ignored. */
export function handleSnapshot(raft: Raft, message: Message): void {
  const { snapshot, from: to } = message;
  if (!snapshot) return;
  const restored = restore(raft, snapshot);
  const commit = raft.log.committed;
  raft.trace?.({ kind: "snapshotHandled", ...raft.stamp, commit, restored, snapshot });
  raft.send({ type: "MsgAppResp", to, index: restored ? raft.log.lastIndex : commit });
}

/** Replaces log and configuration with a snapshot; false if it is unnecessary or not permitted. */
function restore(raft: Raft, snapshot: Snapshot): boolean {
  const { log, trace } = raft;
  if (snapshot.index <= log.committed) return false;
  if (raft.role !== "follower") {
    trace?.({ kind: "snapshotNotFollower", ...raft.stamp });
    raft.becomeFollower(raft.term + 1, NO_NODE);
    return false;
  }
  const { confState } = snapshot;
  if (!isMember(confState, raft.id)) {
    trace?.({ kind: "snapshotWithoutSelf", ...raft.stamp, confState });
    return false;
  }
  if (log.matches(snapshot)) {
    const { committed: commit, lastId: last } = log;
    trace?.({ kind: "snapshotFastForward", ...raft.stamp, commit, last, snapshot });
    log.commitTo(snapshot.index);
    return false;
  }
  log.restore(snapshot);
  restoreConfState(raft, confState, snapshot.index);
  const { committed: commit, lastId: last } = log;
  trace?.({ kind: "snapshotRestored", ...raft.stamp, commit, last, snapshot });
  return true;
}

import { invariant } from "../invariant.ts";
import { type Entry, type EntryPayload, payloadBytes } from "../log/entry.ts";
import type { Progress } from "../tracker/progress.ts";
import type { Raft } from "./raft.ts";
import { isMember } from "./state.ts";

/**
 * Appends entries to the leader's log; false if too many bytes would be uncommitted. The leader
 * acknowledges them to itself once they are durable.
 */
export function appendEntries(raft: Raft, payloads: readonly EntryPayload[]): boolean {
  if (!reserveUncommitted(raft, payloadBytes(payloads))) {
    raft.trace?.({ kind: "proposalOverLimit", ...raft.stamp });
    return false;
  }
  const next = raft.log.lastIndex + 1;
  const entries: Entry[] = payloads.map((payload, i) => {
    const { type, data, hasExplicitType } = payload;
    const entry = { term: raft.term, index: next + i, type, data };
    return hasExplicitType ? { ...entry, hasExplicitType } : entry;
  });
  const last = raft.log.append(entries);
  raft.send({ type: "MsgAppResp", to: raft.id, index: last });
  return true;
}

/** Empty entries always pass, and so does any first one, so that no limit can block a leader. */
function reserveUncommitted(raft: Raft, bytes: number): boolean {
  const used = raft.uncommittedBytes;
  if (used > 0 && bytes > 0 && used + bytes > raft.config.maxUncommittedBytes) return false;
  raft.uncommittedBytes = used + bytes;
  return true;
}

/** Records that `bytes` payload bytes were applied. */
export function releaseUncommitted(raft: Raft, bytes: number): void {
  // A new leader counts from zero, so entries from before its term are not in the sum.
  raft.uncommittedBytes = Math.max(0, raft.uncommittedBytes - bytes);
}

/** Sends every other member its missing entries, or the commit index alone. */
export function broadcastAppend(raft: Raft): void {
  for (const id of raft.tracker.ids) {
    if (id !== raft.id) sendAppend(raft, id, true);
  }
}

/**
 * Sends a member its missing entries, or a snapshot if they are compacted, unless it is paused.
 * Without entries it sends only if `sendIfEmpty`. True if it sent a message.
 */
export function sendAppend(raft: Raft, to: number, sendIfEmpty: boolean): boolean {
  const progress = raft.tracker.get(to);
  invariant(progress !== undefined, () => `no progress of member ${to}`);
  if (progress.paused) return false;
  const previous = progress.next - 1;
  const previousTerm = raft.log.term(previous);
  if (typeof previousTerm !== "number") return sendSnapshot(raft, to, progress);

  // With a full window only an empty append is sent. Its answer opens the window again if all
  // messages in it were lost.
  const throttled = progress.state === "replicate" && progress.inflights.full;
  const entries = throttled ? [] : raft.log.entriesFrom(progress.next, raft.config.maxMessageBytes);
  if (entries.length === 0 && !sendIfEmpty) return false;
  if (typeof entries === "string") return sendSnapshot(raft, to, progress);
  const commit = raft.log.committed;
  raft.send({ type: "MsgApp", to, index: previous, logTerm: previousTerm, entries, commit });
  progress.sentEntries(entries.length, payloadBytes(entries));
  progress.sentCommit(commit);
  return true;
}

function sendSnapshot(raft: Raft, to: number, progress: Progress): boolean {
  const { trace, log, stamp } = raft;
  if (!progress.recentActive) {
    trace?.({ kind: "snapshotToInactive", ...stamp, to });
    return false;
  }
  const snapshot = log.snapshot();
  // A member that was added after the snapshot would refuse it.
  if (!snapshot || !isMember(snapshot.confState, to)) {
    trace?.({ kind: "snapshotUnavailable", ...stamp, to });
    return false;
  }
  invariant(snapshot.index > 0, () => "storage gave an empty snapshot");
  const { firstIndex, committed: commit } = log;
  trace?.({ kind: "snapshotSent", ...stamp, to, progress, firstIndex, commit, snapshot });
  progress.becomeSnapshot(snapshot.index);
  trace?.({ kind: "replicationPaused", ...stamp, to, progress });
  raft.send({ type: "MsgSnap", to, snapshot });
  return true;
}

/** Sends every other member a heartbeat, which also confirms the pending reads. */
export function broadcastHeartbeat(raft: Raft): void {
  const context = raft.readOnly.heartbeatContext();
  for (const id of raft.tracker.ids) {
    const progress = raft.tracker.get(id);
    if (id === raft.id || !progress) continue;
    // The commit index sent must not exceed the index where the member's log is known to match.
    const commit = Math.min(progress.match, raft.log.committed);
    raft.send({ type: "MsgHeartbeat", to: id, commit, context });
    progress.sentCommit(commit);
  }
}

/** Advances the commit index to what a quorum stores; true if it increased. */
export function maybeCommit(raft: Raft): boolean {
  return raft.log.maybeCommit({ term: raft.term, index: raft.tracker.committed() });
}

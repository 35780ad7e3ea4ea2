import { invariant } from "../invariant.ts";
import { type EntryPayload, NO_DATA } from "../log/entry.ts";
import { type ConfChange, decodeConfChange } from "../membership/conf-change.ts";
import type { Progress } from "../tracker/progress.ts";
import {
  handleAppendResponse,
  handleHeartbeatResponse,
  handleSnapshotStatus,
  handleUnreachable,
} from "./append-response.ts";
import type { Message } from "./message.ts";
import { dropped, type Raft, STEPPED, type StepResult } from "./raft.ts";
import { handleReadIndex } from "./reads.ts";
import { appendEntries, broadcastAppend, broadcastHeartbeat } from "./replication.ts";
import { NO_NODE } from "./state.ts";
import { transferLeadership } from "./transfer.ts";

/** Processes a message of its term as leader. */
export function stepLeader(raft: Raft, message: Message): StepResult {
  switch (message.type) {
    case "MsgBeat":
      broadcastHeartbeat(raft);
      return STEPPED;
    case "MsgCheckQuorum":
      checkQuorum(raft);
      return STEPPED;
    case "MsgProp":
      return propose(raft, message.entries);
    case "MsgReadIndex":
      return handleReadIndex(raft, message);
    case "MsgForgetLeader":
      return STEPPED;
  }
  const progress = raft.tracker.get(message.from);
  if (progress) stepMember(raft, message, progress);
  else raft.trace?.({ kind: "noProgress", ...raft.stamp, from: message.from });
  return STEPPED;
}

function stepMember(raft: Raft, message: Message, progress: Progress): void {
  const { type, from } = message;
  if (type === "MsgAppResp") handleAppendResponse(raft, message, progress);
  else if (type === "MsgHeartbeatResp") handleHeartbeatResponse(raft, message, progress);
  else if (type === "MsgSnapStatus") handleSnapshotStatus(raft, message, progress);
  else if (type === "MsgUnreachable") handleUnreachable(raft, message, progress);
  else if (type === "MsgTransferLeader") transferLeadership(raft, from, progress);
}

/** Steps down if no quorum responded since the last check (Raft thesis, section 6.2). */
function checkQuorum(raft: Raft): void {
  if (!raft.tracker.quorumActive()) {
    raft.trace?.({ kind: "quorumInactive", ...raft.stamp });
    raft.becomeFollower(raft.term, NO_NODE);
  }
  for (const [id, progress] of raft.tracker.progress) {
    if (id === raft.id) continue;
    progress.wasActive = progress.recentActive;
    progress.recentActive = false;
  }
}

function propose(raft: Raft, payloads: readonly EntryPayload[]): StepResult {
  invariant(payloads.length > 0, () => "a proposal without entries");
  if (!raft.tracker.get(raft.id)) return dropped("notMember");
  if (raft.leadTransferee !== NO_NODE) {
    const transferee = raft.leadTransferee;
    raft.trace?.({ kind: "proposalDuringTransfer", ...raft.stamp, transferee });
    return dropped("transferringLeadership");
  }
  const isPlain = payloads.every(({ type }) => type === "EntryNormal");
  const checked = isPlain
    ? payloads
    : payloads.map((payload, i) => checkConfChange(raft, payload, i));
  if (!appendEntries(raft, checked)) return dropped("tooManyUncommitted");
  broadcastAppend(raft);
  return STEPPED;
}

/** The payload at a position of a proposal, or an empty one if it is a refused conf change. */
function checkConfChange(raft: Raft, payload: EntryPayload, position: number): EntryPayload {
  const change = decodeConfChange(payload);
  if (!change) return payload;
  const reason = raft.config.disableConfChangeValidation
    ? undefined
    : confChangeRefusal(raft, change);
  if (reason === undefined) {
    raft.pendingConfIndex = raft.log.lastIndex + position + 1;
    return payload;
  }
  const { config } = raft.tracker;
  raft.trace?.({ kind: "confChangeIgnored", ...raft.stamp, change, config, reason });
  return { type: "EntryNormal", data: NO_DATA, hasExplicitType: true };
}

/** Why a conf change may not be proposed now, by the active configuration. */
function confChangeRefusal(raft: Raft, change: ConfChange): string | undefined {
  const { pendingConfIndex, log } = raft;
  const isJoint = raft.tracker.config.voters.outgoing.size > 0;
  const wantsToLeave = change.changes.length === 0;
  if (pendingConfIndex > log.applied) {
    return `possible unapplied conf change at index ${pendingConfIndex} (applied to ${log.applied})`;
  }
  if (isJoint && !wantsToLeave) return "must transition out of joint config first";
  if (!isJoint && wantsToLeave) return "not in joint state; refusing empty conf change";
  return undefined;
}

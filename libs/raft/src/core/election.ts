import { invariant } from "../invariant.ts";
import { NO_DATA } from "../log/entry.ts";
import { voterIds } from "../tracker/quorum.ts";
import type { Message, MessageType } from "./message.ts";
import type { Raft } from "./raft.ts";
import { appendEntries, broadcastAppend } from "./replication.ts";
import { NO_NODE } from "./state.ts";

/** The kind of an election: a pre-vote, a real one, or one requested by the old leader. */
type CampaignType = "preElection" | "election" | "transfer";

/** The context of a vote request if the old leader requested the election. */
const TRANSFER_CONTEXT: Uint8Array = Uint8Array.from([1]);

/** True if a vote request is part of a leadership transfer, which overrides the lease. */
export function isTransferVote(message: Message): boolean {
  return message.context.length === 1 && message.context[0] === TRANSFER_CONTEXT[0];
}

/** Starts an election, unless this node already leads or may not lead. */
export function startElection(raft: Raft, type: CampaignType): void {
  if (raft.role === "leader") {
    raft.trace?.({ kind: "hupIgnoredAsLeader", ...raft.stamp });
    return;
  }
  if (!raft.promotable) {
    raft.trace?.({ kind: "unpromotable", ...raft.stamp });
    return;
  }
  // A committed change that is not applied yet may have removed this node as a voter.
  if (hasUnappliedConfChange(raft)) {
    raft.trace?.({ kind: "pendingConfChanges", ...raft.stamp });
    return;
  }
  raft.trace?.({ kind: "electionStarted", ...raft.stamp });
  campaign(raft, type);
}

function hasUnappliedConfChange(raft: Raft): boolean {
  const { log } = raft;
  let next = log.applied + 1;
  while (next <= log.committed) {
    const page = log.slice(next, log.committed + 1, raft.config.maxApplyingBytes);
    invariant(
      typeof page !== "string" && page.length > 0,
      () => `committed entry ${next} cannot be read, though only ${log.applied} are applied`,
    );
    if (page.some((entry) => entry.type !== "EntryNormal")) return true;
    next += page.length;
  }
  return false;
}

function campaign(raft: Raft, type: CampaignType): void {
  const isPreVote = type === "preElection";
  if (isPreVote) raft.becomePreCandidate();
  else raft.becomeCandidate();
  const request: MessageType = isPreVote ? "MsgPreVote" : "MsgVote";
  // A pre-vote is about the term that would follow.
  const term = isPreVote ? raft.term + 1 : raft.term;
  const last = raft.log.lastId;
  for (const to of voterIds(raft.tracker.config.voters)) {
    if (to === raft.id) {
      // The vote for oneself counts once it is durable, like every other.
      raft.send({ type: isPreVote ? "MsgPreVoteResp" : "MsgVoteResp", to, term });
      continue;
    }
    raft.trace?.({ kind: "voteRequested", ...raft.stamp, last, type: request, to });
    const context = type === "transfer" ? TRANSFER_CONTEXT : NO_DATA;
    raft.send({ type: request, to, term, index: last.index, logTerm: last.term, context });
  }
}

/** Counts an answer to a vote request, and wins or loses the election if it is decisive. */
export function countVote(raft: Raft, message: Message): void {
  const { type, from } = message;
  const { trace, tracker } = raft;
  if (message.reject && adoptCommit(raft, message)) return;
  trace?.({ kind: "voteReceived", ...raft.stamp, type, from, granted: !message.reject });
  tracker.recordVote(from, !message.reject);
  const { granted, rejected, result } = tracker.tallyVotes();
  trace?.({ kind: "voteTally", ...raft.stamp, type, granted, rejected });
  if (result === "lost") raft.becomeFollower(raft.term, NO_NODE);
  if (result !== "won") return;
  // Others may answer before this node's own term and vote are durable. If it led now and crashed,
  // it could be elected again in the same term, which would then have had two leaders.
  if (raft.role === "candidate" && !tracker.hasVoted(raft.id)) return;
  if (raft.role === "preCandidate") {
    campaign(raft, "election");
    return;
  }
  becomeLeader(raft);
  broadcastAppend(raft);
}

/**
 * Adopts the commit index of a rejected vote if this log has that very entry. True if a membership
 * change must be applied now, which may change the voters of the election.
 */
function adoptCommit(raft: Raft, { logTerm: term, commit: index }: Message): boolean {
  if (!raft.log.maybeCommit({ term, index }) || !hasUnappliedConfChange(raft)) return false;
  raft.becomeFollower(raft.term, NO_NODE);
  return true;
}

function becomeLeader(raft: Raft): void {
  invariant(raft.role === "candidate", () => `a ${raft.role} cannot become leader`);
  raft.reset(raft.term);
  raft.lead = raft.id;
  raft.role = "leader";
  const self = raft.tracker.get(raft.id);
  invariant(self !== undefined, () => "a node outside of the configuration became leader");
  self.becomeReplicate();
  self.recentActive = true;
  // A conf change may be anywhere in the log; none is proposed until all of it is applied.
  raft.pendingConfIndex = raft.log.lastIndex;
  // Earlier entries can only be committed together with one of this term (Raft, 5.4.2).
  const accepted = appendEntries(raft, [{ type: "EntryNormal", data: NO_DATA }]);
  invariant(accepted, () => "the first entry of a term was refused");
  raft.trace?.({ kind: "roleChanged", ...raft.stamp, role: "leader" });
}

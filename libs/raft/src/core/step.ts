import { entriesApplied, snapshotApplied } from "./applied.ts";
import { stepCandidate } from "./candidate.ts";
import { isTransferVote, startElection } from "./election.ts";
import { stepFollower } from "./follower.ts";
import { stepLeader } from "./leader.ts";
import type { Message } from "./message.ts";
import { type Raft, STEPPED, type StepResult } from "./raft.ts";
import { NO_NODE } from "./state.ts";

/** Processes a message: compares the terms, votes, and leaves the rest to the role. */
export function step(raft: Raft, message: Message): StepResult {
  if (message.term > raft.term && !adoptTerm(raft, message)) return STEPPED;
  if (message.term !== 0 && message.term < raft.term) {
    handleLowerTerm(raft, message);
    return STEPPED;
  }
  switch (message.type) {
    case "MsgHup":
      startElection(raft, raft.config.preVote ? "preElection" : "election");
      return STEPPED;
    case "MsgStorageAppendResp":
      if (message.index !== 0) raft.log.stableTo({ term: message.logTerm, index: message.index });
      if (message.snapshot) snapshotApplied(raft, message.snapshot);
      return STEPPED;
    case "MsgStorageApplyResp":
      entriesApplied(raft, message.entries);
      return STEPPED;
    case "MsgVote":
    case "MsgPreVote":
      handleVote(raft, message);
      return STEPPED;
  }
  if (raft.role === "leader") return stepLeader(raft, message);
  if (raft.role === "follower") return stepFollower(raft, message);
  return stepCandidate(raft, message);
}

/** Adopts the higher term of a message where it counts; false if the message is to be ignored. */
function adoptTerm(raft: Raft, message: Message): boolean {
  const { type, from } = message;
  const isVote = type === "MsgVote" || type === "MsgPreVote";
  if (isVote && !isTransferVote(message) && inLease(raft)) {
    const remainingTicks = raft.config.electionTicks - raft.electionElapsed;
    raft.trace?.({ kind: "voteIgnoredInLease", ...voteTrace(raft, message), remainingTicks });
    return false;
  }
  // A pre-vote never moves the term. A granted one answers about a term that is not reached yet.
  if (type === "MsgPreVote" || (type === "MsgPreVoteResp" && !message.reject)) return true;
  const { stamp } = raft;
  raft.trace?.({ kind: "higherTerm", ...stamp, type, from, messageTerm: message.term });
  const fromLeader = type === "MsgApp" || type === "MsgHeartbeat" || type === "MsgSnap";
  raft.becomeFollower(message.term, fromLeader ? from : NO_NODE);
  return true;
}

/** True while the last message of a leader is less than an election timeout old (thesis, 4.2.3). */
function inLease(raft: Raft): boolean {
  const { checkQuorum, electionTicks } = raft.config;
  return checkQuorum && raft.lead !== NO_NODE && raft.electionElapsed < electionTicks;
}

function handleLowerTerm(raft: Raft, message: Message): void {
  const { type, from, term: messageTerm } = message;
  const { checkQuorum, preVote } = raft.config;
  if ((checkQuorum || preVote) && (type === "MsgHeartbeat" || type === "MsgApp")) {
    // This node's term may have grown while it was cut off, and its votes are ignored now. It can
    // join again only when the leader steps down at this answer.
    raft.send({ type: "MsgAppResp", to: from });
  } else if (type === "MsgPreVote") {
    // Nodes without pre-vote may have left a candidate behind that must learn the current term.
    rejectVote(raft, message);
  } else if (type === "MsgStorageAppendResp") {
    if (message.index !== 0) {
      // The entries may have been replaced since; a later response acknowledges the current ones.
      raft.trace?.({ kind: "staleAppendIgnored", ...raft.stamp, type, from, messageTerm });
    }
    // A snapshot is committed state, whatever the term.
    if (message.snapshot) snapshotApplied(raft, message.snapshot);
  } else {
    raft.trace?.({ kind: "lowerTermIgnored", ...raft.stamp, type, from, messageTerm });
  }
}

function handleVote(raft: Raft, message: Message): void {
  const { type, from, term } = message;
  const isPreVote = type === "MsgPreVote";
  const mayVote =
    raft.vote === from ||
    (raft.vote === NO_NODE && raft.lead === NO_NODE) ||
    (isPreVote && term > raft.term);
  // Learners vote too: a learner may be a voter in a configuration that it has not applied. Its
  // vote may be needed to elect the leader that replicates that configuration.
  if (!mayVote || !raft.log.isUpToDate({ term: message.logTerm, index: message.index })) {
    rejectVote(raft, message);
    return;
  }
  raft.trace?.({ kind: "voteCast", ...voteTrace(raft, message) });
  // The answer carries the term of the request; a pre-candidate in a higher term would drop ours.
  raft.send({ type: isPreVote ? "MsgPreVoteResp" : "MsgVoteResp", to: from, term });
  if (isPreVote) return;
  raft.electionElapsed = 0;
  raft.vote = from;
}

function rejectVote(raft: Raft, message: Message): void {
  raft.trace?.({ kind: "voteRejected", ...voteTrace(raft, message) });
  const type = message.type === "MsgPreVote" ? "MsgPreVoteResp" : "MsgVoteResp";
  const refusal = { type, to: message.from, term: raft.term, reject: true } as const;
  if (!raft.config.commitInRefusedVotes) {
    raft.send(refusal);
    return;
  }
  const commit = raft.log.committed;
  raft.send({ ...refusal, commit, logTerm: raft.log.termOrZero(commit) });
}

function voteTrace(raft: Raft, message: Message) {
  const { type, from, logTerm, index } = message;
  const candidateLast = { term: logTerm, index };
  return { ...raft.stamp, last: raft.log.lastId, vote: raft.vote, type, from, candidateLast };
}

import { handleAppend, handleHeartbeat, handleSnapshot } from "./append-handler.ts";
import { startElection } from "./election.ts";
import type { Message } from "./message.ts";
import { dropped, type Raft, STEPPED, type StepResult } from "./raft.ts";
import { NO_NODE } from "./state.ts";

/** Processes a message of its term as follower. */
export function stepFollower(raft: Raft, message: Message): StepResult {
  switch (message.type) {
    case "MsgProp":
      return forwardProposal(raft, message);
    case "MsgReadIndex":
      return forwardRead(raft, message);
    case "MsgApp":
      onLeaderContact(raft, message);
      handleAppend(raft, message);
      return STEPPED;
    case "MsgHeartbeat":
      onLeaderContact(raft, message);
      handleHeartbeat(raft, message);
      return STEPPED;
    case "MsgSnap":
      onLeaderContact(raft, message);
      handleSnapshot(raft, message);
      return STEPPED;
    case "MsgReadIndexResp":
      receiveRead(raft, message);
      return STEPPED;
    case "MsgTransferLeader":
      if (raft.lead === NO_NODE) raft.trace?.({ kind: "transferWithoutLeader", ...raft.stamp });
      else raft.send({ ...message, to: raft.lead, term: 0 });
      return STEPPED;
    case "MsgForgetLeader":
      forgetLeader(raft);
      return STEPPED;
    case "MsgTimeoutNow":
      raft.trace?.({ kind: "timeoutNowReceived", ...raft.stamp, peer: message.from });
      // The old leader requested this election, so a pre-vote would only cost a round trip.
      startElection(raft, "transfer");
      return STEPPED;
  }
  return STEPPED;
}

function onLeaderContact(raft: Raft, message: Message): void {
  raft.electionElapsed = 0;
  raft.lead = message.from;
}

function forwardProposal(raft: Raft, message: Message): StepResult {
  const { lead } = raft;
  if (lead === NO_NODE) {
    raft.trace?.({ kind: "proposalWithoutLeader", ...raft.stamp });
    return dropped("noLeader");
  }
  if (raft.config.disableProposalForwarding) {
    raft.trace?.({ kind: "proposalNotForwarded", ...raft.stamp, lead });
    return dropped("notForwarding");
  }
  raft.send({ ...message, to: lead, term: 0 });
  return STEPPED;
}

function forwardRead(raft: Raft, message: Message): StepResult {
  if (raft.lead === NO_NODE) {
    raft.trace?.({ kind: "readWithoutLeader", ...raft.stamp });
    return dropped("noLeader");
  }
  raft.send({ ...message, to: raft.lead, term: 0 });
  return STEPPED;
}

function receiveRead(raft: Raft, message: Message): void {
  const [entry] = message.entries;
  if (entry) raft.readStates.push({ index: message.index, context: entry.data });
  else raft.trace?.({ kind: "malformedReadResponse", ...raft.stamp });
}

function forgetLeader(raft: Raft): void {
  // With leases a forgotten leader could still answer reads while this node elects another one.
  if (raft.config.readMode === "lease") {
    raft.trace?.({ kind: "forgetLeaderIgnored", ...raft.stamp });
    return;
  }
  if (raft.lead === NO_NODE) return;
  raft.trace?.({ kind: "leaderForgotten", ...raft.stamp, lead: raft.lead });
  raft.lead = NO_NODE;
}

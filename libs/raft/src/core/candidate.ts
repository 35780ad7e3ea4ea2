import { handleAppend, handleHeartbeat, handleSnapshot } from "./append-handler.ts";
import { countVote } from "./election.ts";
import type { Message } from "./message.ts";
import { dropped, type Raft, STEPPED, type StepResult } from "./raft.ts";

/** Processes a message of its term as candidate or pre-candidate. */
export function stepCandidate(raft: Raft, message: Message): StepResult {
  // An answer to the pre-vote may arrive during the real vote, where it does not count.
  const awaited = raft.role === "preCandidate" ? "MsgPreVoteResp" : "MsgVoteResp";
  switch (message.type) {
    case "MsgProp":
      raft.trace?.({ kind: "proposalWithoutLeader", ...raft.stamp });
      return dropped("noLeader");
    case "MsgReadIndex":
      raft.trace?.({ kind: "readWithoutLeader", ...raft.stamp });
      return dropped("noLeader");
    case "MsgApp":
      raft.becomeFollower(message.term, message.from);
      handleAppend(raft, message);
      return STEPPED;
    case "MsgHeartbeat":
      raft.becomeFollower(message.term, message.from);
      handleHeartbeat(raft, message);
      return STEPPED;
    case "MsgSnap":
      raft.becomeFollower(message.term, message.from);
      handleSnapshot(raft, message);
      return STEPPED;
    case "MsgTimeoutNow": {
      const { role } = raft;
      raft.trace?.({ kind: "timeoutNowIgnored", ...raft.stamp, peer: message.from, role });
      return STEPPED;
    }
    case awaited:
      countVote(raft, message);
      return STEPPED;
  }
  return STEPPED;
}

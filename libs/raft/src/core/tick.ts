import { createMessage } from "./message.ts";
import type { Raft } from "./raft.ts";
import { NO_NODE } from "./state.ts";
import { step } from "./step.ts";
import { handOverIfRemoved } from "./transfer.ts";

/**
 * Moves a node's timers on by the ticks that have passed since the last call.
 *
 * Where many passed at once, the node was not running: mail of that time lies unread, so silence
 * proves nothing. A follower then starts to wait afresh, and a leader counts one tick towards its
 * quorum check but sends its overdue heartbeats.
 */
export function tick(raft: Raft, elapsedTicks: number): void {
  if (elapsedTicks < raft.config.lateTicks) {
    for (let i = 0; i < elapsedTicks; i++) tickOnce(raft);
  } else if (raft.role === "leader") {
    raft.heartbeatElapsed = raft.config.heartbeatTicks;
    tickOnce(raft);
  } else {
    raft.electionElapsed = 0;
    raft.trace?.({ kind: "electionTimerReset", ...raft.stamp, elapsedTicks });
  }
}

function tickOnce(raft: Raft): void {
  raft.electionElapsed++;
  if (raft.role === "leader") tickLeader(raft);
  else if (raft.promotable && raft.electionElapsed >= raft.randomizedElectionTicks) {
    raft.electionElapsed = 0;
    step(raft, createMessage({ type: "MsgHup", to: raft.id, from: raft.id }));
  }
}

function tickLeader(raft: Raft): void {
  raft.heartbeatElapsed++;
  if (raft.electionElapsed >= raft.config.electionTicks) {
    raft.electionElapsed = 0;
    if (raft.config.checkQuorum) {
      step(raft, createMessage({ type: "MsgCheckQuorum", to: raft.id, from: raft.id }));
    }
    // A transfer that took an election timeout has failed; the leader takes proposals again.
    raft.leadTransferee = NO_NODE;
  }
  if (raft.role === "leader" && raft.heartbeatElapsed >= raft.config.heartbeatTicks) {
    raft.heartbeatElapsed = 0;
    step(raft, createMessage({ type: "MsgBeat", to: raft.id, from: raft.id }));
    handOverIfRemoved(raft);
  }
}

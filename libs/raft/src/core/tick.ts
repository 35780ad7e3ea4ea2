import { createMessage } from "./message.ts";
import type { Raft } from "./raft.ts";
import { NO_NODE } from "./state.ts";
import { step } from "./step.ts";
import { handOverIfRemoved } from "./transfer.ts";

/**
 * Advances a node's timers by the ticks since the last call. Many ticks at once mean that the node
 * was suspended: its messages are unread, so missing heartbeats prove nothing.
 *
 * - A follower then restarts its election timer.
 * - A leader counts one tick for its quorum check, but sends its overdue heartbeats.
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
    // A transfer that took an election timeout has failed; the leader accepts proposals again.
    raft.leadTransferee = NO_NODE;
  }
  if (raft.role === "leader" && raft.heartbeatElapsed >= raft.config.heartbeatTicks) {
    raft.heartbeatElapsed = 0;
    step(raft, createMessage({ type: "MsgBeat", to: raft.id, from: raft.id }));
    handOverIfRemoved(raft);
  }
}

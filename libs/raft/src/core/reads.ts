import type { Message } from "./message.ts";
import { dropped, type Raft, STEPPED, type StepResult } from "./raft.ts";
import { broadcastHeartbeat } from "./replication.ts";

/** Processes a read on the leader (Raft thesis, section 6.4). */
export function handleReadIndex(raft: Raft, message: Message): StepResult {
  if (raft.readOnly.size + raft.postponedReads.length >= raft.config.maxPendingReads) {
    raft.trace?.({ kind: "readOverLimit", ...raft.stamp });
    return dropped("tooManyReads");
  }
  // Until it has committed an entry of its term, a leader does not know the commit index.
  if (raft.committedInTerm) confirmRead(raft, message);
  else raft.postponedReads.push(message);
  return STEPPED;
}

/** Starts the reads that waited for the first commit of the term. */
export function releasePostponedReads(raft: Raft): void {
  if (raft.postponedReads.length === 0 || !raft.committedInTerm) return;
  const reads = raft.postponedReads;
  raft.postponedReads = [];
  for (const read of reads) confirmRead(raft, read);
}

function confirmRead(raft: Raft, message: Message): void {
  // The only voter needs no round; a removed leader does, even if only one votes.
  if (raft.config.readMode === "lease" || raft.tracker.decidesAlone(raft.id)) {
    answerRead(raft, message, raft.log.committed);
    return;
  }
  raft.readOnly.add(message, raft.log.committed);
  raft.readOnly.receiveAck(raft.id, raft.readOnly.heartbeatContext());
  broadcastHeartbeat(raft);
}

/** Processes the context of a heartbeat's answer, and answers the reads that it confirms. */
export function handleReadAck(raft: Raft, message: Message): void {
  if (raft.config.readMode === "lease" || message.context.length === 0) return;
  raft.readOnly.receiveAck(message.from, message.context);
  answerConfirmedReads(raft);
}

/** Answers the reads that a quorum of the current voters has confirmed. */
export function answerConfirmedReads(raft: Raft): void {
  for (const { request, index } of raft.readOnly.takeConfirmed(raft.tracker.config.voters)) {
    answerRead(raft, request, index);
  }
}

function answerRead(raft: Raft, request: Message, index: number): void {
  const [entry] = request.entries;
  if (request.from !== raft.id) {
    const { from: to, entries } = request;
    raft.send({ type: "MsgReadIndexResp", to, index, entries });
  } else if (entry) {
    raft.readStates.push({ index, context: entry.data });
  }
}

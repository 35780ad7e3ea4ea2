import { type Entry, entriesBytes, payloadBytes } from "../log/entry.ts";
import { AUTO_LEAVE } from "../membership/conf-change.ts";
import { stepLeader } from "./leader.ts";
import { createMessage } from "./message.ts";
import type { Raft } from "./raft.ts";
import { releaseUncommitted } from "./replication.ts";
import type { Snapshot } from "./state.ts";

/** Records that entries were applied. */
export function entriesApplied(raft: Raft, entries: readonly Entry[]): void {
  const last = entries.at(-1);
  if (!last) return;
  appliedTo(raft, last.index, entriesBytes(entries));
  releaseUncommitted(raft, payloadBytes(entries));
}

/** Records that a snapshot was restored and is durable. */
export function snapshotApplied(raft: Raft, snapshot: Snapshot): void {
  raft.log.stableSnapshotTo(snapshot.index);
  appliedTo(raft, snapshot.index, 0);
}

function appliedTo(raft: Raft, index: number, bytes: number): void {
  const applied = Math.max(index, raft.log.applied);
  raft.log.appliedTo(applied, bytes);
  const { config } = raft.tracker;
  if (!config.autoLeave || applied < raft.pendingConfIndex || raft.role !== "leader") return;
  // During a leadership transfer the proposal may be refused; the next applied entry retries it.
  const leave = { ...AUTO_LEAVE, term: 0, index: 0 };
  const proposal = createMessage({ type: "MsgProp", to: raft.id, entries: [leave] });
  const kind = stepLeader(raft, proposal).ok ? "autoLeaveStarted" : "autoLeaveDropped";
  raft.trace?.({ kind, ...raft.stamp, config });
}

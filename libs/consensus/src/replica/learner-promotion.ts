import { type ConfState, isMember } from "@heddle/raft/core/state";
import type { Status } from "@heddle/raft/raw-node";

/** A learner that is behind by fewer entries than this becomes a voter. */
const PROMOTION_LAG = 100;

/** The learner that a leader can make a voter now: one that has caught up, in no other change's way. */
export function learnerToPromote(
  { progress, commit }: Status,
  confState: ConfState,
): number | undefined {
  if (confState.votersOutgoing.length > 0) return undefined;
  for (const [id, peer] of progress) {
    // One that has nothing yet needs a snapshot, however short the log is.
    if (!peer.isLearner || !peer.recentActive || peer.match === 0) continue;
    if (peer.match + PROMOTION_LAG >= commit && isMember(confState, id)) return id;
  }
  return undefined;
}

import type { Raft } from "../core/raft.ts";
import { answerConfirmedReads, releasePostponedReads } from "../core/reads.ts";
import { broadcastAppend, maybeCommit, sendAppend } from "../core/replication.ts";
import { type ConfState, confStatesEquivalent, NO_NODE } from "../core/state.ts";
import { invariant } from "../invariant.ts";
import { EMPTY_CONFIG, type TrackedConfig } from "../tracker/tracker.ts";
import { type ChangeResult, Changer, restoreConfig } from "./changer.ts";
import { type ConfChange, jointMode, leavesJoint } from "./conf-change.ts";

/**
 * Applies the conf change of a committed entry and returns the configuration that results.
 * Undefined if the configuration is already as of that entry or a later one.
 */
export function applyConfChange(
  raft: Raft,
  change: ConfChange,
  index: number,
): ConfState | undefined {
  // A snapshot may have overtaken entries that wait to be applied.
  if (index <= raft.configIndex) return undefined;
  raft.configIndex = index;
  const { config, progress } = raft.tracker;
  const changer = new Changer({ config, progress }, changerOptions(raft));
  const result = applyWith(changer, change);
  invariant(result.ok, () => `a conf change was committed that does not apply: ${errorOf(result)}`);
  return switchTo(raft, result.next);
}

function applyWith(changer: Changer, change: ConfChange): ChangeResult {
  if (leavesJoint(change)) return changer.leaveJoint();
  const mode = jointMode(change);
  if (mode === "simple") return changer.simple(change.changes);
  return changer.enterJoint(change.changes, mode === "jointAutoLeave");
}

/**
 * Replaces the configuration with the one stored as of an index, at the start or from a snapshot.
 */
export function restoreConfState(raft: Raft, state: ConfState, index: number): void {
  raft.configIndex = index;
  const result = restoreConfig(EMPTY_CONFIG, state, changerOptions(raft));
  invariant(result.ok, () => `the stored configuration is invalid: ${errorOf(result)}`);
  const restored = switchTo(raft, result.next);
  invariant(
    confStatesEquivalent(state, restored),
    () =>
      `the stored configuration ${JSON.stringify(state)} became ${JSON.stringify(restored)} instead`,
  );
}

function changerOptions(raft: Raft) {
  return { lastIndex: raft.log.lastIndex, newInflights: () => raft.tracker.newInflights() };
}

function errorOf(result: ChangeResult): string {
  return result.ok ? "" : result.error;
}

function switchTo(raft: Raft, next: TrackedConfig): ConfState {
  const { tracker, trace, stamp } = raft;
  tracker.switchTo(next);
  trace?.({ kind: "configSwitched", ...stamp, config: tracker.config });
  const state = tracker.confState();
  const self = tracker.get(raft.id);
  if (raft.role !== "leader") return state;
  if (!self || self.isLearner) {
    if (raft.config.stepDownOnRemoval) raft.becomeFollower(raft.term, NO_NODE);
    return state;
  }
  if (state.voters.length > 0) feedMembers(raft);
  return state;
}

/** On a leader after a change: the quorum may be smaller now, and new members need the log. */
function feedMembers(raft: Raft): void {
  const { tracker } = raft;
  if (maybeCommit(raft)) {
    releasePostponedReads(raft);
    broadcastAppend(raft);
  } else {
    for (const id of tracker.ids) {
      if (id !== raft.id) sendAppend(raft, id, false);
    }
  }
  answerConfirmedReads(raft);
  const { incoming, outgoing } = tracker.config.voters;
  const transferee = raft.leadTransferee;
  if (!incoming.has(transferee) && !outgoing.has(transferee)) raft.leadTransferee = NO_NODE;
}

import { EMPTY_CONF_STATE } from "@heddle/raft/core/state";
import type { Status } from "@heddle/raft/raw-node";
import { expect, test } from "vitest";
import { learnerToPromote } from "./learner-promotion.ts";

const CAUGHT_UP = { isLearner: true, recentActive: true, match: 900 };
const joined = { ...EMPTY_CONF_STATE, voters: [1], learners: [2] };

/** The member that becomes a voter where the leader has committed 1,000 entries. */
function promoted(peer: object, confState = joined) {
  const progress = new Map([
    [1, { isLearner: false, recentActive: true, match: 1_000 }],
    [2, { ...CAUGHT_UP, ...peer }],
  ]);
  return learnerToPromote({ progress, commit: 1_000 } as unknown as Status, confState);
}

test("promotion: a learner that lacks a hundred entries at most becomes a voter", () => {
  expect(promoted({})).toBe(2);
  expect(promoted({ match: 899 })).toBeUndefined();
});

test("promotion: not of a voter, nor of one that is silent or has nothing yet", () => {
  expect(promoted({ isLearner: false })).toBeUndefined();
  expect(promoted({ recentActive: false })).toBeUndefined();
  const progress = new Map([[2, { ...CAUGHT_UP, match: 0 }]]);
  const status = { progress, commit: 50 } as unknown as Status;
  expect(learnerToPromote(status, joined)).toBeUndefined();
});

test("promotion: not while a change is under way, nor before joining is applied", () => {
  expect(promoted({}, { ...joined, votersOutgoing: [1] })).toBeUndefined();
  expect(promoted({}, { ...joined, learners: [] })).toBeUndefined();
});

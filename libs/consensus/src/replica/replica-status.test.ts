import { EMPTY_CONF_STATE } from "@heddle/raft/core/state";
import type { Status } from "@heddle/raft/raw-node";
import { expect, test } from "vitest";
import { firstMembership, Membership } from "./membership.ts";
import { describeReplica } from "./replica-status.ts";

const members = [1, 2, 3].map((id) => {
  return { id, name: `m${id}`, address: `m${id}:1`, nonce: `n${id}` };
});

/** Member 1 as the leader of term 4 where nothing else is said. */
function described(change: Partial<Status> = {}, appliedTerm = 4, peer: object = {}) {
  const progress = new Map([[2, { match: 7, recentActive: false, wasActive: undefined, ...peer }]]);
  const status = { id: 1, role: "leader", term: 4, lead: 1, commit: 9, progress, ...change };
  const membership = new Membership(firstMembership(members));
  membership.confState = { ...EMPTY_CONF_STATE, voters: [1], learners: [2], votersOutgoing: [3] };
  return describeReplica(status as unknown as Status, membership, {
    appliedTerm,
    applied: 8,
    snapshotIndex: 5,
    isBehind: false,
    isMemberBehind: (id, match) => id === 2 && match === 7,
  });
}

test("status: a leader leads once it has applied an entry of its term", () => {
  expect(described().isActiveLeader).toBe(true);
  expect(described({}, 3).isActiveLeader).toBe(false);
  expect(described({ role: "follower" }).isActiveLeader).toBe(false);
});

test("status: no leader is undefined, and the rest is as in Raft's status", () => {
  expect(described({ lead: 0 }).leader).toBeUndefined();
  expect(described()).toMatchObject({
    id: 1,
    role: "leader",
    term: 4,
    leader: 1,
    commit: 9,
    applied: 8,
    snapshotIndex: 5,
    isBehind: false,
  });
});

test("status: who is being removed votes until then, and a learner does not", () => {
  expect(described().members.map(({ votes }) => votes)).toEqual([true, false, true]);
});

test("status: a member is active as of this check or the one before", () => {
  const active = (peer: object) => described({}, 4, peer).members[1]?.active;
  expect(active({ recentActive: true, wasActive: false })).toBe(true);
  expect(active({ recentActive: false, wasActive: true })).toBe(true);
  expect(active({ recentActive: false, wasActive: false })).toBe(false);
  expect(active({})).toBeUndefined();
});

test("status: the leader reports progress of the members that it tracks", () => {
  const [own, second] = described().members;
  expect(second).toMatchObject({ match: 7, isBehind: true });
  expect(own).not.toHaveProperty("match");
});

import { EMPTY_CONF_STATE } from "@heddle/raft/core/state";
import type { ConfChangeSingle } from "@heddle/raft/membership/conf-change";
import { expect, test } from "vitest";
import type { Member } from "../ports.ts";
import { decodeContext, encodeContext, firstMembership, Membership } from "./membership.ts";

const member = (id: number, change: Partial<Member> = {}): Member => {
  return { id, name: `m${id}`, address: `m${id}:1`, nonce: `n${id}`, ...change };
};

/** Members 1 to 3 vote; 4 was the last id that was given. */
const three = () => {
  const state = firstMembership([member(3), member(1), member(2)]);
  return new Membership({ ...state, lastId: 4 });
};

const change = (...changes: ConfChangeSingle[]) => {
  return { transition: "auto" as const, changes, context: new Uint8Array(0) };
};
const add = (nodeId: number) => ({ type: "addNode" as const, nodeId });
const learn = (nodeId: number) => ({ type: "addLearnerNode" as const, nodeId });
const remove = (nodeId: number) => ({ type: "removeNode" as const, nodeId });

test("membership: in the first one all vote, in order", () => {
  const { confState, lastId } = firstMembership([member(3), member(1), member(2)]);
  expect([confState.voters, lastId]).toEqual([[1, 2, 3], 3]);
  expect(three().nextId).toBe(5);
});

test("membership: an id is never given twice, not even after its member left", () => {
  const members = [member(4)];
  expect(three().refusal(change(learn(4)), { members })).toMatch(/given the id 4; ask again/);
  expect(three().refusal(change(learn(5)), { members: [member(5)] })).toBeUndefined();
});

test("membership: a name is unique, unless the change removes its holder", () => {
  const members = [member(5, { name: "m2" })];
  expect(three().refusal(change(learn(5)), { members })).toBe("a member m2 exists");
  expect(three().refusal(change(learn(5), remove(2)), { members })).toBeUndefined();
  expect(three().refusal(change(learn(5), remove(1)), { members })).toBe("a member m2 exists");
});

test("membership: a new member needs a name, one that is promoted does not", () => {
  expect(three().refusal(change(learn(5)), { members: [] })).toMatch(/member 5 without a name/);
  expect(three().refusal(change(add(2)), { members: [] })).toBeUndefined();
});

test("membership: one who joins twice is known by the nonce", () => {
  expect(three().refusal(change(add(2)), { members: [member(2)] })).toBeUndefined();
  const other = [member(2, { nonce: "other" })];
  expect(three().refusal(change(add(2)), { members: other })).toMatch(/given the id 2/);
});

test("membership: without a voter nothing could ever be committed", () => {
  const refused = /no member that votes/;
  const all = change(remove(1), remove(2), remove(3));
  expect(three().refusal(all, { members: [] })).toMatch(refused);
  const demoted = change(learn(1), learn(2), learn(3));
  expect(three().refusal(demoted, { members: [] })).toMatch(refused);
  expect(three().refusal(change(remove(1), remove(2)), { members: [] })).toBeUndefined();
  const kept = change(remove(1), remove(2), remove(3), add(5));
  expect(three().refusal(kept, { members: [member(5)] })).toBeUndefined();
  const updated = change(remove(1), remove(2), { type: "updateNode", nodeId: 3 });
  expect(three().refusal(updated, { members: [] })).toBeUndefined();
});

test("membership: who leaves is gone when the configuration has left it, and for good", () => {
  const membership = three();
  const joint = { ...EMPTY_CONF_STATE, voters: [1, 2], votersOutgoing: [1, 2, 3] };
  membership.apply(change(remove(3)), { members: [] }, joint);
  expect([membership.has(3), membership.isJoint, membership.wasRemoved(3)]).toEqual([
    true,
    true,
    false,
  ]);
  membership.apply(change(), { members: [] }, { ...joint, votersOutgoing: [] });
  expect([membership.has(3), membership.isJoint, membership.wasRemoved(3)]).toEqual([
    false,
    false,
    true,
  ]);
  expect(membership.wasRemoved(4)).toBe(true);
  expect(membership.wasRemoved(5)).toBe(false);
});

test("membership: with no known configuration the change itself lists the removed", () => {
  const membership = three();
  membership.apply(change(remove(3), learn(5)), { members: [member(5)] }, undefined);
  expect(membership.members.map(({ id }) => id)).toEqual([1, 2, 5]);
  expect([membership.nextId, membership.state(), membership.isJoint]).toEqual([6, undefined, true]);
});

test("membership: one without members has removed none", () => {
  const none = new Membership({ confState: EMPTY_CONF_STATE, members: [], lastId: 0 });
  expect(none.wasRemoved(0)).toBe(false);
  expect(none.find("m1")).toBeUndefined();
});

test("membership: the members of a change's context are decoded as encoded", () => {
  const proposal = { node: 1, incarnation: 2, sequence: 3 };
  expect(decodeContext(encodeContext(proposal, [member(5)]))).toEqual({
    proposal,
    members: [member(5)],
  });
  expect(decodeContext(new Uint8Array(0))).toEqual({});
});

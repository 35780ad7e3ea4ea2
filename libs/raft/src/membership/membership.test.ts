// holds: raft-membership

import { describe, expect, it } from "vitest";
import { createMessage, type Message } from "../core/message.ts";
import { NO_DATA } from "../log/entry.ts";
import { TestGroup, TestNode } from "../testing/test-group.ts";
import {
  type ConfChangeSingle,
  type ConfChangeTransition,
  encodeConfChange,
} from "./conf-change.ts";

const add = (nodeId: number): ConfChangeSingle => ({ type: "addNode", nodeId });
const learn = (nodeId: number): ConfChangeSingle => ({ type: "addLearnerNode", nodeId });
const remove = (nodeId: number): ConfChangeSingle => ({ type: "removeNode", nodeId });

function change(changes: ConfChangeSingle[], transition: ConfChangeTransition = "auto") {
  return { changes, transition, context: NO_DATA };
}

function proposeChange(
  group: TestGroup,
  id: number,
  changes: ConfChangeSingle[],
  transition?: ConfChangeTransition,
): void {
  group.node(id).raw.proposeConfChange(change(changes, transition));
  group.settle();
}

function voters(node: TestNode): number[][] {
  const { incoming, outgoing } = node.status.config.voters;
  return [[...incoming].sort(), [...outgoing].sort()];
}

/** Nodes 1 to 3, of which 1 leads, and 4 and 5, which start empty. */
function group(setup = {}): TestGroup {
  const made = new TestGroup([1, 2, 3], () => setup);
  for (const id of [4, 5]) {
    const node = new TestNode(id, { voters: [1, 2, 3], ...setup });
    made.nodes.set(id, node);
  }
  made.elect(1);
  return made;
}

describe("a change of membership", () => {
  it("adds a voter that catches up and counts from then on", () => {
    const made = group();
    proposeChange(made, 1, [add(4)]);
    made.beat(1);
    expect(voters(made.node(4))).toEqual([[1, 2, 3, 4], []]);
    made.cut(2, 3);
    made.propose(1, "two of four");
    expect(made.node(1).status.commit).toBe(3);
    made.mend();
    made.beat(1);
    expect(made.node(1).status.commit).toBe(4);
  });

  it("enters a joint configuration that the leader leaves automatically", () => {
    const made = group();
    proposeChange(made, 1, [add(4), add(5), remove(2), remove(3)]);
    made.beat(1);
    expect(voters(made.node(1))).toEqual([[1, 4, 5], []]);
    expect(made.node(1).terms).toEqual([2, 2, 2]);
  });

  it("explicit transition: stays joint until an empty change is proposed", () => {
    const made = group();
    proposeChange(made, 1, [add(4), remove(3)], "explicit");
    expect(voters(made.node(1))).toEqual([
      [1, 2, 4],
      [1, 2, 3],
    ]);
    proposeChange(made, 1, []);
    expect(voters(made.node(1))).toEqual([[1, 2, 4], []]);
  });

  it("needs both majorities while it is joint", () => {
    const made = group();
    proposeChange(made, 1, [add(4), add(5), remove(2)], "explicit");
    made.cut(4, 5);
    const { commit } = made.node(1).status;
    made.propose(1, "new half missing");
    expect(made.node(1).status.commit).toBe(commit);
    made.mend();
    made.beat(1);
    expect(made.node(1).status.commit).toBe(commit + 1);
    made.cut(2, 3);
    made.propose(1, "old half missing");
    expect(made.node(1).status.commit).toBe(commit + 1);
  });

  it("is replaced by an empty entry while another is unapplied", () => {
    const node = new TestNode(1, { voters: [1] });
    node.raw.campaign();
    node.work();
    node.raw.proposeConfChange(change([learn(2)]));
    node.raw.proposeConfChange(change([learn(3)]));
    node.work();
    expect(node.applied.map(({ type }) => type)).toEqual([
      "EntryNormal",
      "EntryConfChangeV2",
      "EntryNormal",
    ]);
    expect([...node.status.config.learners]).toEqual([2]);
  });

  it("is replaced also after another entry of the same proposal", () => {
    const node = new TestNode(1, { voters: [1] });
    node.raw.campaign();
    node.work();
    const command = { type: "EntryNormal", data: NO_DATA } as const;
    const entries = [command, command, encodeConfChange(change([learn(2)]), 2)].map((payload) => ({
      ...payload,
      term: 0,
      index: 0,
    }));
    node.raw.step(createMessage({ type: "MsgProp", to: 1, from: 9, entries }));
    node.raw.proposeConfChange(change([learn(3)]));
    node.work();
    expect([...node.status.config.learners]).toEqual([2]);
  });

  it("of version 1 takes one step", () => {
    const node = new TestNode(1, { voters: [1] });
    node.raw.campaign();
    node.work();
    node.raw.proposeConfChange(change([learn(2)]), 1);
    node.work();
    expect(node.applied.at(-1)?.type).toBe("EntryConfChange");
    expect(node.confState.learners).toEqual([2]);
    expect(() => node.raw.proposeConfChange(change([learn(2), learn(3)]), 1)).toThrow("one step");
  });

  it("is not applied again when the same entry arrives twice", () => {
    const node = new TestNode(1, { voters: [1] });
    node.raw.campaign();
    node.work();
    node.raw.proposeConfChange(change([learn(2)]));
    node.work();
    const index = node.status.applied;
    expect(node.raw.applyConfChange(change([remove(2)]), index)).toBeUndefined();
    expect([...node.status.config.learners]).toEqual([2]);
  });

  it("that is committed and cannot apply stops the node", () => {
    const node = new TestNode(1, { voters: [1] });
    expect(() => node.raw.applyConfChange(change([remove(1)]), 9)).toThrow("removed all voters");
  });
});

describe("a learner", () => {
  it("replicates but neither counts nor campaigns", () => {
    const made = new TestGroup([1, 2], () => ({ voters: [1], learners: [2] }));
    made.elect(1);
    made.cut(2);
    made.propose(1, "alone");
    expect(made.node(1).status.commit).toBe(3);
    made.node(2).timeOut();
    made.node(2).raw.campaign();
    expect(made.node(2).status).toMatchObject({ role: "follower", term: 2 });
    made.mend();
    made.beat(1);
    expect(made.node(2).status.applied).toBe(3);
  });

  it("votes on request, as it may unknowingly be a voter", () => {
    const node = new TestNode(2, { voters: [1], learners: [2] });
    const request = { type: "MsgVote", to: 2, from: 1, term: 2, index: 1, logTerm: 1 } as const;
    expect(node.take(createMessage(request))).toMatchObject([{ reject: false }]);
  });

  it("becomes a voter by promotion; a demoted voter is a learner after the joint phase", () => {
    const made = group();
    proposeChange(made, 1, [learn(4)]);
    made.beat(1);
    proposeChange(made, 1, [add(4), learn(3)]);
    made.beat(1);
    expect(voters(made.node(1))).toEqual([[1, 2, 4], []]);
    expect([...made.node(1).status.config.learners]).toEqual([3]);
  });
});

describe("a leader that is removed", () => {
  it("brings another voter up to date and transfers leadership to it", () => {
    const made = group({ checkQuorum: true, preVote: true });
    proposeChange(made, 1, [remove(1)]);
    for (let i = 0; i < 3; i++) made.beat(1);
    const leaders = [...made.nodes.values()].filter(({ status }) => status.role === "leader");
    expect(leaders.map(({ status }) => status.id)).not.toContain(1);
    expect(leaders).toHaveLength(1);
  });

  it("steps down at once with stepDownOnRemoval", () => {
    const made = group({ stepDownOnRemoval: true });
    proposeChange(made, 1, [remove(1)]);
    expect(made.node(1).status).toMatchObject({ role: "follower", lead: 0 });
  });

  it("refuses proposals", () => {
    const made = group({ handOverOnRemoval: false });
    proposeChange(made, 1, [remove(1)]);
    expect(made.node(1).raw.propose(NO_DATA)).toMatchObject({ reason: "notMember" });
  });

  it("after its crash, a voter without the commit of the removal can still lead", () => {
    // Node 2 has the removal of node 1 and does not know that it is committed. Node 1, no voter any
    // more, has one entry more and so rejects its vote request.
    const one = new TestNode(1, { voters: [2], terms: [1, 1], commit: 2, term: 1 });
    const two = new TestNode(2, { voters: [1, 2], terms: [1], commit: 1, term: 1 });
    two.raw.campaign();
    const [request] = two.work();
    one.raw.step(request as Message);
    const [refusal] = one.work();
    expect(refusal).toMatchObject({ type: "MsgVoteResp", reject: true, commit: 2, logTerm: 1 });
    two.take(refusal as Message);
    expect(two.status).toMatchObject({ role: "follower", commit: 2 });
  });
});

describe("an election", () => {
  it("waits until committed membership changes are applied", () => {
    const node = new TestNode(2, { voters: [1, 2] });
    const entry = { ...encodeConfChange(change([learn(3)])), term: 2, index: 2 };
    const append = { type: "MsgApp", to: 2, from: 1, term: 2, index: 1, logTerm: 1 } as const;
    node.raw.step(createMessage({ ...append, entries: [entry], commit: 2 }));
    node.raw.campaign();
    expect(node.status.role).toBe("follower");
    node.work();
    node.raw.campaign();
    expect(node.status.role).toBe("candidate");
  });
});

import { describe, expect, it } from "vitest";
import { bytes, TestGroup, TestNode, text } from "../testing/test-group.ts";
import { createMessage } from "./message.ts";
import { ReadOnly } from "./read-only.ts";

function reads(node: TestNode): string[] {
  return node.reads.map(({ index, context }) => `${text({ data: context })}@${index}`);
}

describe("a read", () => {
  it("is answered with the commit index once a quorum has confirmed the leader", () => {
    const group = new TestGroup([1, 2, 3]);
    group.elect(1);
    group.propose(1, "a");
    group.node(1).raw.readIndex(bytes("r"));
    expect(reads(group.node(1))).toEqual([]);
    group.settle();
    expect(reads(group.node(1))).toEqual(["r@3"]);
  });

  it("on a follower goes through the leader", () => {
    const group = new TestGroup([1, 2, 3]);
    group.elect(1);
    group.node(3).raw.readIndex(bytes("r"));
    group.settle();
    expect(reads(group.node(3))).toEqual(["r@2"]);
  });

  it("on a leader that is cut off is never answered", () => {
    const group = new TestGroup([1, 2, 3]);
    group.elect(1);
    group.cut(1);
    group.node(1).raw.readIndex(bytes("r"));
    group.settle();
    group.elect(2);
    group.mend();
    group.beat(2);
    group.beat(1);
    expect(reads(group.node(1))).toEqual([]);
  });

  it("waits for the first commit of the leader's term", () => {
    const node = new TestNode(1, { terms: [1], term: 1 });
    node.raw.campaign();
    node.work();
    node.take(createMessage({ type: "MsgVoteResp", to: 1, from: 2, term: 2 }));
    node.raw.readIndex(bytes("r"));
    expect(node.work().map(({ type }) => type)).not.toContain("MsgHeartbeat");
    const sent = node.take(
      createMessage({ type: "MsgAppResp", to: 1, from: 2, term: 2, index: 3 }),
    );
    const beat = sent.find(({ type }) => type === "MsgHeartbeat");
    expect(beat?.context).not.toEqual(bytes(""));
    const context = beat?.context ?? bytes("");
    node.take(createMessage({ type: "MsgHeartbeatResp", to: 1, from: 2, term: 2, context }));
    expect(reads(node)).toEqual(["r@3"]);
  });

  it("on the only voter waits for the first commit of the term too", () => {
    const node = new TestNode(1, { voters: [1], terms: [1, 1], commit: 1 });
    node.raw.campaign();
    const ready = node.raw.ready();
    node.storage.setHardState(ready.hardState ?? { term: 0, vote: 0, commit: 0 });
    node.raw.advance();
    expect(node.status.role).toBe("leader");
    node.raw.readIndex(bytes("r"));
    node.work();
    expect(reads(node)).toEqual(["r@4"]);
  });

  it("without a leader is refused", () => {
    const node = new TestNode(1);
    const refused = { ok: false, error: "dropped", reason: "noLeader" };
    expect(node.raw.readIndex(bytes("r"))).toEqual(refused);
    node.timeOut();
    expect(node.raw.readIndex(bytes("r"))).toEqual(refused);
  });

  it("beyond maxPendingReads is refused", () => {
    const group = new TestGroup([1, 2, 3], () => ({ maxPendingReads: 1 }));
    group.elect(1);
    expect(group.node(1).raw.readIndex(bytes("r")).ok).toBe(true);
    expect(group.node(1).raw.readIndex(bytes("s"))).toMatchObject({ reason: "tooManyReads" });
  });

  // holds: raft-read-index
  it("that is repeated is not answered by a round that began before", () => {
    const group = new TestGroup([1, 2, 3]);
    group.elect(1);
    const leader = group.node(1);
    leader.raw.readIndex(bytes("same"));
    const [first] = leader.work();
    leader.raw.readIndex(bytes("same"));
    leader.work();
    const context = first?.context ?? bytes("");
    leader.take(createMessage({ type: "MsgHeartbeatResp", to: 1, from: 2, term: 2, context }));
    expect(leader.reads).toHaveLength(1);
    leader.take(createMessage({ type: "MsgHeartbeatResp", to: 1, from: 3, term: 2, context }));
    expect(leader.reads).toHaveLength(1);
  });

  it("by lease is answered at once", () => {
    const group = new TestGroup([1, 2, 3], () => ({ readMode: "lease", checkQuorum: true }));
    group.elect(1);
    group.cut(2, 3);
    group.node(1).raw.readIndex(bytes("r"));
    group.settle();
    expect(reads(group.node(1))).toEqual(["r@2"]);
  });

  it("by lease forbids that the leader is forgotten", () => {
    const group = new TestGroup([1, 2, 3], () => ({ readMode: "lease", checkQuorum: true }));
    group.elect(1);
    group.node(2).raw.forgetLeader();
    expect(group.node(2).status.lead).toBe(1);
  });
});

describe("the confirmation rounds", () => {
  const read = createMessage({ type: "MsgReadIndex", to: 1 });
  const voters = { incoming: new Set([1, 2, 3]), outgoing: new Set<number>() };

  it("confirm a read and all before it", () => {
    const rounds = new ReadOnly();
    rounds.add(read, 4);
    rounds.add(read, 5);
    const context = rounds.heartbeatContext();
    rounds.add(read, 6);
    rounds.receiveAck(1, context);
    rounds.receiveAck(2, context);
    expect(rounds.takeConfirmed(voters).map(({ index }) => index)).toEqual([4, 5]);
    expect(rounds.takeConfirmed(voters)).toEqual([]);
    expect(rounds.size).toBe(1);
  });

  it("need a majority of both halves while the configuration is joint", () => {
    const rounds = new ReadOnly();
    rounds.add(read, 4);
    const joint = { incoming: new Set([1, 4, 5]), outgoing: new Set([1, 2, 3]) };
    for (const id of [1, 4, 5]) rounds.receiveAck(id, rounds.heartbeatContext());
    expect(rounds.takeConfirmed(joint)).toEqual([]);
    rounds.receiveAck(2, rounds.heartbeatContext());
    expect(rounds.takeConfirmed(joint).map(({ index }) => index)).toEqual([4]);
  });

  it("ignore malformed contexts, and numbers that were never assigned", () => {
    const rounds = new ReadOnly();
    rounds.add(read, 4);
    rounds.receiveAck(1, new Uint8Array(3));
    rounds.receiveAck(2, new Uint8Array(8).fill(1));
    rounds.receiveAck(3, new Uint8Array(8).fill(1));
    expect(rounds.takeConfirmed(voters).map(({ index }) => index)).toEqual([4]);
    rounds.add(read, 5);
    expect(new DataView(rounds.heartbeatContext().buffer).getBigUint64(0)).toBe(2n);
  });
});

import { describe, expect, it } from "vitest";
import { APPEND_THREAD, createMessage, type Message } from "./core/message.ts";
import { EMPTY_CONF_STATE } from "./core/state.ts";
import { NO_DATA } from "./log/entry.ts";
import { MemoryStorage } from "./log/memory-storage.ts";
import { RawNode } from "./raw-node.ts";
import { bytes, TestGroup, TestNode } from "./testing/test-group.ts";

describe("a batch of work", () => {
  it("has the entries and the hard state before the messages that depend on them", () => {
    const node = new TestNode(1);
    node.raw.campaign();
    const ready = node.raw.ready();
    expect(ready.hardState).toEqual({ term: 2, vote: 1, commit: 1 });
    expect(ready.mustSync).toBe(true);
    expect(ready.messages.map(({ type }) => type)).toEqual(["MsgVote", "MsgVote"]);
    node.raw.advance();
    expect(node.raw.hasReady()).toBe(false);
  });

  it("must be finished before the next", () => {
    const node = new TestNode(1);
    node.raw.campaign();
    node.raw.ready();
    expect(() => node.raw.ready()).toThrow("ready was called again before advance");
    node.raw.advance();
    expect(() => node.raw.advance()).toThrow("advance was called without a batch");
  });

  it("that only raises the commit index need not be synced", () => {
    const group = new TestGroup([1, 2]);
    group.elect(1);
    const node = group.node(2);
    node.raw.step(createMessage({ type: "MsgHeartbeat", to: 2, from: 1, term: 2, commit: 2 }));
    expect(node.raw.ready()).toMatchObject({ mustSync: false, hardState: undefined });
  });
});

describe("messages that a node ignores", () => {
  it("local ones from the network", () => {
    const result = new TestNode(1).raw.step(createMessage({ type: "MsgHup", to: 1, from: 2 }));
    expect(result).toEqual({ ok: false, error: "localMessage" });
  });

  it("responses from nodes that are no members", () => {
    const message = createMessage({ type: "MsgAppResp", to: 1, from: 9, term: 1 });
    expect(new TestNode(1).raw.step(message)).toEqual({ ok: false, error: "unknownPeer" });
  });
});

describe("a proposal", () => {
  it("on a follower goes to the leader", () => {
    const group = new TestGroup([1, 2, 3]);
    group.elect(1);
    expect(group.propose(2, "x").ok).toBe(true);
    expect(group.node(3).applied.map(({ data }) => data)).toEqual([NO_DATA, bytes("x")]);
  });

  it("without a leader, or where it may not be forwarded, is refused", () => {
    expect(new TestNode(1).raw.propose(NO_DATA)).toMatchObject({ reason: "noLeader" });
    const group = new TestGroup([1, 2], () => ({ disableProposalForwarding: true }));
    group.elect(1);
    expect(group.node(2).raw.propose(NO_DATA)).toMatchObject({ reason: "notForwarding" });
  });
});

// holds: raft-transfer
describe("a transfer of leadership", () => {
  it("to a node that is up to date takes effect at once, in spite of the lease", () => {
    const group = new TestGroup([1, 2, 3], () => ({ checkQuorum: true, preVote: true }));
    group.elect(1);
    group.node(1).raw.transferLeader(3);
    group.settle();
    expect(group.node(3).status.role).toBe("leader");
    expect(group.node(1).status).toMatchObject({ role: "follower", lead: 3 });
  });

  it("requested on a follower goes through the leader", () => {
    const group = new TestGroup([1, 2, 3]);
    group.elect(1);
    group.node(2).raw.transferLeader(2);
    group.settle();
    expect(group.node(2).status.role).toBe("leader");
  });

  it("to a slow node first brings it up to date, and takes no proposals meanwhile", () => {
    const group = new TestGroup([1, 2, 3]);
    group.elect(1);
    group.cut(3);
    group.propose(1, "missed");
    group.node(1).raw.transferLeader(3);
    expect(group.node(1).raw.propose(NO_DATA)).toMatchObject({ reason: "transferringLeadership" });
    group.settle();
    group.mend();
    group.beat(1);
    expect(group.node(3).status).toMatchObject({ role: "leader", commit: 4 });
  });

  it("that takes an election timeout is aborted", () => {
    const group = new TestGroup([1, 2, 3]);
    group.elect(1);
    group.cut(3);
    group.propose(1, "missed");
    group.node(1).raw.transferLeader(3);
    expect(group.node(1).status.leadTransferee).toBe(3);
    group.node(1).tick(10);
    expect(group.node(1).status).toMatchObject({ role: "leader", leadTransferee: 0 });
    expect(group.node(1).raw.propose(NO_DATA).ok).toBe(true);
  });

  it("to the leader itself aborts the one in progress", () => {
    const group = new TestGroup([1, 2, 3]);
    group.elect(1);
    group.cut(3);
    group.propose(1, "missed");
    const { raw } = group.node(1);
    raw.transferLeader(3);
    raw.transferLeader(1);
    expect(group.node(1).status).toMatchObject({ role: "leader", leadTransferee: 0 });
    expect(raw.propose(NO_DATA).ok).toBe(true);
  });

  it("to a learner, to itself or to a non-member does nothing", () => {
    const group = new TestGroup([1, 2], () => ({ voters: [1], learners: [2] }));
    group.elect(1);
    for (const to of [1, 2, 9]) group.node(1).raw.transferLeader(to);
    group.settle();
    expect(group.node(1).status).toMatchObject({ role: "leader", leadTransferee: 0 });
  });
});

describe("a node without its leader", () => {
  it("votes at once after forgetLeader", () => {
    const group = new TestGroup([1, 2, 3], () => ({ checkQuorum: true, preVote: true }));
    group.elect(1);
    const request = createMessage({
      type: "MsgPreVote",
      to: 2,
      from: 3,
      term: 3,
      index: 2,
      logTerm: 2,
    });
    expect(group.node(2).take(request)).toEqual([]);
    group.node(2).raw.forgetLeader();
    expect(group.node(2).take(request)).toMatchObject([{ type: "MsgPreVoteResp", reject: false }]);
  });
});

// holds: raft-async-storage
describe("asynchronous storage", () => {
  function follower(): RawNode {
    const storage = new MemoryStorage();
    const confState = { ...EMPTY_CONF_STATE, voters: [1, 2, 3] };
    storage.applySnapshot({ index: 1, term: 1, confState, data: NO_DATA });
    return new RawNode({
      id: 1,
      electionTicks: 10,
      heartbeatTicks: 1,
      random: () => 0,
      storage,
      asyncStorageWrites: true,
    });
  }

  function append(node: RawNode, from: number, term: number, entryTerm: number): Message[] {
    const entries = [{ term: entryTerm, index: 2, type: "EntryNormal", data: NO_DATA } as const];
    const init = { type: "MsgApp", to: 1, from, term, index: 1, logTerm: 1 } as const;
    node.step(createMessage({ ...init, entries }));
    return node.ready().messages.filter(({ to }) => to === APPEND_THREAD);
  }

  it("keeps back acknowledgements within the write that they depend on", () => {
    const [write] = append(follower(), 2, 2, 2);
    expect(write).toMatchObject({ type: "MsgStorageAppend", term: 2 });
    expect(write?.responses.map(({ type, to }) => [type, to])).toEqual([
      ["MsgAppResp", 2],
      ["MsgStorageAppendResp", 1],
    ]);
  });

  it("does not mistake the end of an old write for that of a newer one", () => {
    const node = follower();
    const first = append(node, 2, 2, 2);
    append(node, 3, 3, 3);
    append(node, 2, 4, 2);
    // The first write is done; the third, which puts the same entry back, is not.
    for (const response of first[0]?.responses ?? []) if (response.to === 1) node.step(response);
    const heartbeat = { type: "MsgHeartbeat", to: 1, from: 2, term: 4, commit: 2 } as const;
    node.step(createMessage(heartbeat));
    expect(node.ready().committedEntries).toEqual([]);
  });

  it("does not make a leader of a candidate whose own term is not durable", () => {
    const node = follower();
    node.campaign();
    for (const from of [2, 3]) {
      node.step(createMessage({ type: "MsgPreVoteResp", to: 1, from, term: 1 }));
    }
    const write = node.ready().messages.find(({ to }) => to === APPEND_THREAD);
    for (const from of [2, 3]) {
      node.step(createMessage({ type: "MsgVoteResp", to: 1, from, term: 1 }));
    }
    expect(node.status()).toMatchObject({ role: "candidate", term: 1 });
    for (const response of write?.responses ?? []) node.step(response);
    expect(node.status()).toMatchObject({ role: "leader", term: 1 });
  });

  it("takes a snapshot as applied although the term has grown since its write began", () => {
    const node = follower();
    const confState = { ...EMPTY_CONF_STATE, voters: [1, 2, 3] };
    const snapshot = { index: 5, term: 2, confState, data: NO_DATA };
    node.step(createMessage({ type: "MsgSnap", to: 1, from: 2, term: 2, snapshot }));
    const write = node.ready().messages.find(({ to }) => to === APPEND_THREAD);
    node.step(createMessage({ type: "MsgHeartbeat", to: 1, from: 3, term: 3 }));
    expect(node.status()).toMatchObject({ term: 3, commit: 5, applied: 1 });
    for (const response of write?.responses ?? []) if (response.to === 1) node.step(response);
    expect(node.status()).toMatchObject({ term: 3, applied: 5 });
  });

  it("does not need advance", () => {
    expect(() => follower().advance()).toThrow("storage writes are asynchronous");
  });
});

describe("a restart", () => {
  it("keeps term, vote and commit index, and applies what was not applied", () => {
    const node = new TestNode(1, { terms: [1, 1], term: 3, vote: 2, commit: 3, applied: 2 });
    expect(node.status).toMatchObject({ term: 3, vote: 2, commit: 3, role: "follower" });
    node.work();
    expect(node.applied.map(({ index }) => index)).toEqual([3]);
  });

  it("raises a commit index that is behind what was applied", () => {
    const node = new TestNode(1, { terms: [1, 1], commit: 1, applied: 3 });
    expect(node.status).toMatchObject({ commit: 3, applied: 3 });
  });

  it("stops where the log lacks committed entries", () => {
    expect(() => new TestNode(1, { commit: 7 })).toThrow("was the log lost or truncated?");
  });
});

describe("a configuration in error is refused", () => {
  it.each([
    ["id", { id: 0 }],
    ["heartbeatTicks", { heartbeatTicks: 0 }],
    ["electionTicks", { electionTicks: 1 }],
    ["lateTicks", { lateTicks: 1 }],
    ["maxApplyingBytes", { maxApplyingBytes: 0 }],
    ["maxUncommittedBytes", { maxUncommittedBytes: 0 }],
    ["maxInflightMessages", { maxInflightMessages: 0 }],
    ["maxInflightBytes", { maxInflightBytes: 1 }],
    ["maxPendingReads", { maxPendingReads: 0 }],
    ["checkQuorum", { readMode: "lease", checkQuorum: false }],
  ] as const)("%s", (name, wrong) => {
    const config = { id: 1, electionTicks: 10, heartbeatTicks: 1, random: () => 0, ...wrong };
    expect(() => new RawNode({ ...config, storage: new MemoryStorage() })).toThrow(
      `raft configuration: ${name} must be`,
    );
  });
});

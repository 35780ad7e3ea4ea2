import { expect, test } from "vitest";
import { UnstableLog } from "../log/unstable-log.ts";
import {
  bytes,
  ELECTION_TICKS,
  type NodeSetup,
  TestGroup,
  TestNode,
} from "../testing/test-group.ts";
import { createMessage, type MessageType } from "./message.ts";
import { ReadOnly } from "./read-only.ts";

// Invariants and bounds of one node that no test of a whole group shows.

const voteFrom = (from: number, term: number) =>
  createMessage({ type: "MsgVote", to: 1, from, term, index: 9, logTerm: 9 });

/**
 * Node 1 as the leader of three, with its own entry at index 2 and no acknowledgement of the
 * others.
 */
function leader(setup: NodeSetup = {}): TestNode {
  const node = new TestNode(1, setup);
  node.raw.campaign();
  node.work();
  const { term } = node.status;
  node.take(createMessage({ type: "MsgVoteResp", to: 1, from: 2, term }));
  expect(node.status.role).toBe("leader");
  return node;
}

const acknowledged = (node: TestNode, from: number, index: number) =>
  createMessage({ type: "MsgAppResp", to: 1, from, term: node.status.term, index });

const kinds = (messages: readonly { readonly type: MessageType }[]) =>
  messages.map(({ type }) => type);

test("vote: a vote within the current term needs a durable hard state", () => {
  const node = new TestNode(1, { term: 5 });
  node.raw.step(voteFrom(2, 5));
  const ready = node.raw.ready();
  expect(ready.hardState).toMatchObject({ term: 5, vote: 2 });
  expect(ready.mustSync).toBe(true);
});

test("vote: a commit index alone need not be durable", () => {
  const node = new TestNode(1, { terms: [1, 1], term: 1 });
  node.raw.step(createMessage({ type: "MsgHeartbeat", to: 1, from: 2, term: 1, commit: 2 }));
  const ready = node.raw.ready();
  expect([ready.hardState?.commit, ready.mustSync]).toEqual([2, false]);
});

test("vote: a node that has a leader in the term rejects other candidates", () => {
  const node = new TestNode(1, { term: 5 });
  node.take(createMessage({ type: "MsgHeartbeat", to: 1, from: 3, term: 5 }));
  expect(node.take(voteFrom(2, 5))).toMatchObject([{ type: "MsgVoteResp", to: 2, reject: true }]);
  expect(node.status.vote).toBe(0);
});

test("vote: a candidate learns the commit index of a refusal and stays one", () => {
  const node = new TestNode(1, { terms: [1, 1], term: 1 });
  node.raw.campaign();
  node.work();
  const refusal = { from: 2, term: node.status.term, reject: true, logTerm: 1, commit: 3 };
  node.take(createMessage({ type: "MsgVoteResp", to: 1, ...refusal }));
  expect([node.status.commit, node.status.role]).toEqual([3, "candidate"]);
});

test("vote: a follower that was suspended waits a whole election timeout again", () => {
  const node = new TestNode(1);
  node.tick(ELECTION_TICKS - 1);
  node.raw.tick(ELECTION_TICKS);
  node.tick(ELECTION_TICKS - 1);
  expect(node.status.role).toBe("follower");
  node.timeOut();
  expect(node.status.role).toBe("candidate");
});

test.each([
  [3, "candidate"],
  [4, "follower"],
])("vote: with 4 late ticks, %i at once leave a %s", (late, role) => {
  const node = new TestNode(1, { lateTicks: 4 });
  node.raw.setRandomizedElectionTicks(ELECTION_TICKS);
  node.tick(ELECTION_TICKS - late);
  node.raw.tick(late);
  expect(node.status.role).toBe(role);
});

test("vote: a node that granted one waits a whole election timeout before it campaigns", () => {
  const node = new TestNode(1, { term: 5 });
  node.raw.setRandomizedElectionTicks(ELECTION_TICKS);
  node.tick(ELECTION_TICKS - 1);
  expect(node.take(voteFrom(2, 5))).toMatchObject([{ type: "MsgVoteResp", reject: false }]);
  node.tick(ELECTION_TICKS - 1);
  expect(node.status.role).toBe("follower");
  node.tick(1);
  expect(node.status.role).toBe("candidate");
});

test.each([
  [ELECTION_TICKS - 1, []],
  [ELECTION_TICKS, [{ type: "MsgVoteResp", reject: false }]],
])("vote: %i ticks after a leader's message the lease answers %o", (ticks, answers) => {
  const node = new TestNode(1, { term: 5, checkQuorum: true });
  node.raw.setRandomizedElectionTicks(ELECTION_TICKS + 1);
  node.take(createMessage({ type: "MsgHeartbeat", to: 1, from: 3, term: 5 }));
  node.tick(ticks);
  expect(node.take(voteFrom(2, 6))).toMatchObject(answers);
});

test("transfer: the target gets MsgTimeoutNow once it has the whole log", () => {
  const node = leader();
  node.take(acknowledged(node, 2, 2));
  for (const text of ["a", "b", "c"]) node.raw.propose(bytes(text));
  node.work();
  node.raw.transferLeader(3);
  node.work();
  node.take(acknowledged(node, 3, 2));
  expect(kinds(node.take(acknowledged(node, 3, 4)))).not.toContain("MsgTimeoutNow");
  const last = node.take(acknowledged(node, 3, 5));
  expect(last.filter(({ type }) => type === "MsgTimeoutNow")).toMatchObject([{ to: 3 }]);
});

test("reads: those that wait for the term's first commit count against the bound", () => {
  const node = leader({ maxPendingReads: 2 });
  for (const text of ["a", "b"]) expect(node.raw.readIndex(bytes(text))).toEqual({ ok: true });
  const refused = { ok: false, error: "dropped", reason: "tooManyReads" };
  expect(node.raw.readIndex(bytes("c"))).toEqual(refused);
  node.take(acknowledged(node, 2, 2));
  expect(node.raw.readIndex(bytes("d"))).toEqual(refused);
});

test("reads: a late acknowledgement revokes no confirmation", () => {
  const reads = new ReadOnly();
  const contexts = ["a", "b"].map((text, index) => {
    const entry = { type: "EntryNormal", data: bytes(text), term: 0, index: 0 } as const;
    reads.add(createMessage({ type: "MsgReadIndex", to: 1, from: 1, entries: [entry] }), index);
    return reads.heartbeatContext();
  });
  const voters = { incoming: new Set([1, 2, 3, 4, 5]), outgoing: new Set<number>() };
  const ack = (from: number, at: number) => reads.receiveAck(from, contexts[at] as Uint8Array);
  for (const [from, at] of [[1, 1] as const, [2, 1] as const, [2, 0] as const]) ack(from, at);
  expect(reads.takeConfirmed(voters)).toEqual([]);
  ack(3, 1);
  expect(reads.takeConfirmed(voters).map(({ index }) => index)).toEqual([0, 1]);
  expect(reads.size).toBe(0);
});

test("joint: the leader proposes to leave once, when the change itself is applied", () => {
  const node = leader({ voters: [1, 2, 3] });
  node.take(acknowledged(node, 2, 2));
  node.raw.proposeConfChange({
    transition: "implicit",
    changes: [{ type: "addNode", nodeId: 4 }],
    context: new Uint8Array(0),
  });
  node.raw.propose(bytes("a"));
  node.work();
  for (const index of [3, 4, 5]) {
    for (const from of [2, 3]) node.take(acknowledged(node, from, index));
  }
  for (const text of ["b", "c"]) node.raw.propose(bytes(text));
  node.work();
  const last = node.storage.lastIndex();
  const entries = node.storage.entries(3, last + 1, Number.POSITIVE_INFINITY);
  if (typeof entries === "string") throw new Error(entries);
  const types = entries.map(({ type, data }) => `${type} ${data.length > 0}`);
  expect(types.filter((type) => type === "EntryConfChangeV2 false")).toHaveLength(1);
  expect(types.filter((type) => type === "EntryNormal false")).toEqual([]);
});

const entry = (index: number, term: number) => {
  return { index, term, type: "EntryNormal" as const, data: bytes("x") };
};

test("unstable log: entries replaced during their write are written again", () => {
  const log = new UnstableLog(5, undefined);
  log.truncateAndAppend([5, 6, 7].map((index) => entry(index, 1)));
  log.acceptInProgress();
  log.truncateAndAppend([entry(6, 2)]);
  expect(log.nextEntries()).toEqual([entry(6, 2)]);
  expect([log.hasNextEntries, log.inProgressEnd, log.lastIndex]).toEqual([true, 6, 6]);
  log.acceptInProgress();
  log.truncateAndAppend([entry(7, 2)]);
  expect(log.nextEntries()).toEqual([entry(7, 2)]);
});

test("unstable log: a slice beyond its end breaks an invariant", () => {
  const log = new UnstableLog(5, undefined);
  log.truncateAndAppend([entry(5, 1)]);
  expect(log.slice(5, 6)).toHaveLength(1);
  expect(() => log.slice(5, 7)).toThrow(/entries \[5,7\) are not in the unstable log \[5,6\)/);
});

test("unstable log: durable entries are dropped unless another entry replaced them", () => {
  const log = new UnstableLog(5, undefined);
  log.truncateAndAppend([5, 6, 7].map((index) => entry(index, 2)));
  log.acceptInProgress();
  for (const id of [
    { index: 6, term: 1 },
    { index: 8, term: 2 },
    { index: 4, term: 2 },
  ]) {
    log.stableTo(id);
    expect([log.offset, log.length]).toEqual([5, 3]);
  }
  log.stableTo({ index: 6, term: 2 });
  expect([log.offset, log.length, log.inProgressEnd]).toEqual([7, 1, 8]);
});

test("unstable log: a snapshot is passed on once and dropped when it is durable", () => {
  const log = new UnstableLog(5, undefined);
  const confState = { voters: [1], learners: [], votersOutgoing: [], learnersNext: [] };
  const snapshot = {
    index: 9,
    term: 3,
    confState: { ...confState, autoLeave: false },
    data: new Uint8Array(0),
  };
  log.truncateAndAppend([entry(5, 2)]);
  log.restore(snapshot);
  expect([log.offset, log.length, log.lastIndex, log.term(9), log.term(8)]).toEqual([
    10,
    0,
    9,
    3,
    undefined,
  ]);
  expect(log.nextSnapshot()).toBe(snapshot);
  log.acceptInProgress();
  expect(log.nextSnapshot()).toBeUndefined();
  log.stableSnapshotTo(8);
  expect(log.snapshot).toBe(snapshot);
  log.stableSnapshotTo(9);
  expect(log.snapshot).toBeUndefined();
});

const stateOf = (node: TestNode, id: number) => node.status.progress.get(id)?.state;

test("snapshot: an acknowledgement below the leader's log does not end the state", () => {
  const node = leader();
  for (const text of ["a", "b", "c"]) node.raw.propose(bytes(text));
  node.work();
  node.take(acknowledged(node, 2, 5));
  node.compact();
  const { term } = node.status;
  const lost = { reject: true, rejectHint: 0, logTerm: 0, index: 1 };
  node.take(createMessage({ type: "MsgAppResp", to: 1, from: 3, term, ...lost }));
  node.take(createMessage({ type: "MsgHeartbeatResp", to: 1, from: 3, term }));
  expect(stateOf(node, 3)).toBe("snapshot");
  node.take(acknowledged(node, 3, 3));
  expect(stateOf(node, 3)).toBe("snapshot");
  node.take(acknowledged(node, 3, 5));
  expect(stateOf(node, 3)).toBe("replicate");
});

test("snapshot: an acknowledgement that reaches the leader's log ends the state", () => {
  const node = leader();
  for (const text of ["a", "b", "c"]) node.raw.propose(bytes(text));
  node.work();
  node.take(acknowledged(node, 2, 5));
  node.storage.createSnapshot(5, node.confState, bytes("state"));
  node.storage.compact(3);
  const { term } = node.status;
  const lost = { reject: true, rejectHint: 0, logTerm: 0, index: 1 };
  node.take(createMessage({ type: "MsgAppResp", to: 1, from: 3, term, ...lost }));
  node.take(createMessage({ type: "MsgHeartbeatResp", to: 1, from: 3, term }));
  expect(node.status.progress.get(3)).toMatchObject({ state: "snapshot", pendingSnapshot: 5 });
  node.take(acknowledged(node, 3, 2));
  expect(stateOf(node, 3)).toBe("snapshot");
  node.take(acknowledged(node, 3, 3));
  expect(stateOf(node, 3)).toBe("replicate");
});

test("snapshot: a member that was added after it gets none, and is probed on", () => {
  const node = leader();
  for (const text of ["a", "b", "c"]) node.raw.propose(bytes(text));
  node.work();
  node.take(acknowledged(node, 2, 5));
  node.storage.createSnapshot(5, { ...node.confState, voters: [1, 2] }, bytes("state"));
  node.storage.compact(5);
  const { term } = node.status;
  const refusals = [2, 3].map((from) =>
    createMessage({ type: "MsgAppResp", to: 1, from, term, index: 5, reject: true }),
  );
  node.raw.reportUnreachable(2);
  const answers = refusals.map((refusal) => kinds(node.take(refusal)));
  answers.push(kinds(node.take(createMessage({ type: "MsgHeartbeatResp", to: 1, from: 3, term }))));
  expect(answers.flat()).not.toContain("MsgSnap");
  expect(stateOf(node, 3)).toBe("probe");
});

test("probe: a heartbeat's answer of a member with the whole log causes a probe", () => {
  const node = leader();
  node.take(acknowledged(node, 2, 2));
  node.raw.reportUnreachable(2);
  expect(stateOf(node, 2)).toBe("probe");
  const { term } = node.status;
  const sent = node.take(createMessage({ type: "MsgHeartbeatResp", to: 1, from: 2, term }));
  expect(sent).toMatchObject([{ type: "MsgApp", to: 2, entries: [] }]);
  node.take(acknowledged(node, 2, 2));
  expect(stateOf(node, 2)).toBe("replicate");
});

test("reads: a removed member can make the acknowledgements so far a quorum", () => {
  const group = new TestGroup([1, 2, 3, 4]);
  group.elect(1);
  const { raw, reads } = group.node(1);
  group.loses = ({ type, from }) => type === "MsgHeartbeatResp" && from > 2;
  raw.readIndex(bytes("r"));
  group.settle();
  expect(reads).toEqual([]);
  const changes = [{ type: "removeNode" as const, nodeId: 4 }];
  raw.proposeConfChange({ transition: "auto", changes, context: new Uint8Array(0) });
  group.settle();
  expect(reads.map(({ context }) => Buffer.from(context).toString())).toEqual(["r"]);
});

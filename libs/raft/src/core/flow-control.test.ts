// holds: raft-flow-control

import { describe, expect, it } from "vitest";
import { bytes, TestGroup, TestNode, text } from "../testing/test-group.ts";
import { createMessage } from "./message.ts";

/** Node 1 as leader of two, with node 2 in steady replication. */
function leader(setup = {}): TestNode {
  const node = new TestNode(1, { voters: [1, 2], ...setup });
  node.raw.campaign();
  node.work();
  node.take(createMessage({ type: "MsgVoteResp", to: 1, from: 2, term: 2 }));
  node.take(createMessage({ type: "MsgAppResp", to: 1, from: 2, term: 2, index: 2 }));
  expect(node.status.progress.get(2)?.state).toBe("replicate");
  return node;
}

function appended(node: TestNode, value: string) {
  node.raw.propose(bytes(value));
  return node.work().flatMap(({ entries }) => entries.map(text));
}

describe("appends in flight", () => {
  it("stop at the number of messages and resume with the acknowledgement", () => {
    const node = leader({ maxInflightMessages: 2 });
    expect(appended(node, "a")).toEqual(["a"]);
    expect(appended(node, "b")).toEqual(["b"]);
    expect(appended(node, "c")).toEqual([]);
    expect(node.status.progress.get(2)).toMatchObject({ paused: true, match: 2, next: 5 });
    const next = node.take(
      createMessage({ type: "MsgAppResp", to: 1, from: 2, term: 2, index: 3 }),
    );
    expect(next.flatMap(({ entries }) => entries.map(text))).toEqual(["c"]);
  });

  it("stop at the number of bytes", () => {
    const node = leader({ maxMessageBytes: 8, maxInflightBytes: 8 });
    expect(appended(node, "12345")).toEqual(["12345"]);
    expect(appended(node, "67890")).toEqual(["67890"]);
    expect(appended(node, "more")).toEqual([]);
  });

  it("that are all lost are detected by an empty append after a heartbeat's answer", () => {
    const node = leader({ maxInflightMessages: 1 });
    appended(node, "lost");
    const beat = createMessage({ type: "MsgHeartbeatResp", to: 1, from: 2, term: 2 });
    const [probe] = node.take(beat);
    expect(probe).toMatchObject({ type: "MsgApp", index: 3, entries: [] });
    const refusal = {
      type: "MsgAppResp",
      to: 1,
      from: 2,
      term: 2,
      index: 3,
      reject: true,
    } as const;
    const again = node.take(createMessage({ ...refusal, rejectHint: 2, logTerm: 2 }));
    expect(again.flatMap(({ entries }) => entries.map(text))).toEqual(["lost"]);
  });

  it("are sent one at a time after a peer was reported unreachable", () => {
    const node = leader();
    node.raw.reportUnreachable(2);
    expect(node.status.progress.get(2)?.state).toBe("probe");
    expect(appended(node, "a")).toEqual(["a"]);
    expect(appended(node, "b")).toEqual([]);
  });
});

describe("sizes", () => {
  it("an append holds no more than maxMessageBytes, but one entry at least", () => {
    const group = new TestGroup([1, 2], () => ({ maxMessageBytes: 30 }));
    group.elect(1);
    group.cut(2);
    for (let i = 0; i < 4; i++) group.propose(1, "0123456789");
    group.propose(1, "x".repeat(100));
    group.mend();
    group.beat(1);
    expect(group.node(2).terms).toEqual([2, 2, 2, 2, 2, 2]);
    expect(group.node(2).applied.map((entry) => entry.data.length)).toEqual([
      0, 10, 10, 10, 10, 100,
    ]);
  });

  it("a leader refuses proposals beyond maxUncommittedBytes until the commit", () => {
    const node = leader({ maxUncommittedBytes: 10 });
    expect(node.raw.propose(bytes("123456")).ok).toBe(true);
    const refused = { ok: false, error: "dropped", reason: "tooManyUncommitted" };
    expect(node.raw.propose(bytes("123456"))).toEqual(refused);
    expect(node.raw.propose(bytes("1234")).ok).toBe(true);
    expect(node.raw.propose(bytes("1"))).toEqual(refused);
    expect(node.raw.propose(new Uint8Array(0)).ok).toBe(true);
    node.work();
    node.take(createMessage({ type: "MsgAppResp", to: 1, from: 2, term: 2, index: 5 }));
    expect(node.raw.propose(bytes("123456")).ok).toBe(true);
  });

  it("the first proposal is accepted whatever its size, an empty one always", () => {
    const { raw } = leader({ maxUncommittedBytes: 10 });
    const sizes = [1000, 1, 0];
    expect(sizes.map((size) => raw.propose(new Uint8Array(size)).ok)).toEqual([true, false, true]);
  });

  it("committed entries come in batches of maxApplyingBytes", () => {
    const node = new TestNode(1, { voters: [1], maxApplyingBytes: 40 });
    node.raw.campaign();
    node.work();
    node.raw.proposeAll([1, 2, 3, 4].map(() => new Uint8Array(10)));
    const sizes: number[] = [];
    while (node.raw.hasReady()) {
      const ready = node.raw.ready();
      node.storage.append(ready.entries);
      if (ready.committedEntries.length > 0) sizes.push(ready.committedEntries.length);
      node.raw.advance();
    }
    expect(sizes).toEqual([2, 2]);
  });

  it("an empty batch of proposals is accepted and changes nothing", () => {
    const node = leader();
    expect(node.raw.proposeAll([]).ok).toBe(true);
    expect(node.work()).toEqual([]);
  });
});

describe("snapshots", () => {
  /** Node 1 as leader whose log begins at 6, and node 2 with no entries after 1. */
  function withSnapshotPending(): TestNode {
    const node = new TestNode(1, { voters: [1, 2], terms: [1, 1, 1, 1], commit: 5 });
    node.work();
    node.storage.createSnapshot(5, node.confState, bytes("state"));
    node.storage.compact(5);
    node.raw.campaign();
    node.work();
    node.take(createMessage({ type: "MsgVoteResp", to: 1, from: 2, term: 2 }));
    const refusal = {
      type: "MsgAppResp",
      to: 1,
      from: 2,
      term: 2,
      index: 5,
      reject: true,
    } as const;
    const sent = node.take(createMessage({ ...refusal, rejectHint: 1, logTerm: 1 }));
    expect(sent).toMatchObject([{ type: "MsgSnap", snapshot: { index: 5, term: 1 } }]);
    return node;
  }

  it("replace the entries that a leader no longer has, and pause appends", () => {
    const node = withSnapshotPending();
    expect(node.status.progress.get(2)).toMatchObject({ state: "snapshot", paused: true, next: 6 });
    expect(appended(node, "later")).toEqual([]);
  });

  it("that were delivered move the next append to the entry after them", () => {
    const node = withSnapshotPending();
    node.raw.reportSnapshot(2, "delivered");
    expect(node.status.progress.get(2)).toMatchObject({ state: "probe", next: 6, paused: true });
  });

  it("that failed are retried after a heartbeat's answer", () => {
    const node = withSnapshotPending();
    node.raw.reportSnapshot(2, "failed");
    expect(node.status.progress.get(2)).toMatchObject({ state: "probe", next: 1 });
    const sent = node.take(createMessage({ type: "MsgHeartbeatResp", to: 1, from: 2, term: 2 }));
    expect(sent).toMatchObject([{ type: "MsgSnap" }]);
  });

  it("end when the follower acknowledges an entry of the leader's log", () => {
    const node = withSnapshotPending();
    node.take(createMessage({ type: "MsgAppResp", to: 1, from: 2, term: 2, index: 5 }));
    expect(node.status.progress.get(2)).toMatchObject({ state: "replicate", match: 5, next: 7 });
  });

  it("restore a follower's state, log and membership, and old ones are ignored", () => {
    const node = new TestNode(3, { voters: [1, 2, 3], terms: [1, 1] });
    const confState = { ...node.confState, voters: [1, 3], learners: [4] };
    const snapshot = { index: 9, term: 2, confState, data: bytes("state") };
    const message = createMessage({ type: "MsgSnap", to: 3, from: 1, term: 2, snapshot });
    expect(node.take(message)).toMatchObject([{ type: "MsgAppResp", index: 9 }]);
    expect(node.storage.snapshot()).toBe(snapshot);
    expect([...node.status.config.voters.incoming]).toEqual([1, 3]);
    expect([...node.status.config.learners]).toEqual([4]);
    expect(node.take(message)).toMatchObject([{ type: "MsgAppResp", index: 9 }]);
    expect(node.status.applied).toBe(9);
  });

  it("restore a candidate that lost the election", () => {
    const node = new TestNode(3, { voters: [1, 2, 3] });
    node.raw.campaign();
    node.work();
    const snapshot = { index: 9, term: 1, confState: node.confState, data: bytes("state") };
    const message = createMessage({ type: "MsgSnap", to: 3, from: 1, term: 2, snapshot });
    expect(node.take(message)).toMatchObject([{ type: "MsgAppResp", index: 9 }]);
    expect(node.status).toMatchObject({ role: "follower", lead: 1, applied: 9 });
  });

  it("that a follower's log already contains only move its commit index", () => {
    const node = new TestNode(2, { terms: [1, 1, 1] });
    const snapshot = { index: 3, term: 1, confState: node.confState, data: bytes("") };
    node.take(createMessage({ type: "MsgSnap", to: 2, from: 1, term: 1, snapshot }));
    expect(node.status.commit).toBe(3);
    expect(node.storage.lastIndex()).toBe(4);
  });

  it("without the node itself, or missing altogether, are ignored", () => {
    const node = new TestNode(2);
    const confState = { ...node.confState, voters: [1, 3] };
    const snapshot = { index: 9, term: 2, confState, data: bytes("") };
    const message = { type: "MsgSnap", to: 2, from: 1, term: 2 } as const;
    expect(node.take(createMessage({ ...message, snapshot }))).toMatchObject([{ index: 1 }]);
    expect(node.take(createMessage(message))).toEqual([]);
    expect(node.status.commit).toBe(1);
  });
});

// holds: raft-paper

import { describe, expect, it } from "vitest";
import { type Entry, NO_DATA } from "../log/entry.ts";
import { bytes, TestGroup, TestNode, text } from "../testing/test-group.ts";
import { createMessage } from "./message.ts";

const RAFT = "Ongaro and Ousterhout, In Search of an Understandable Consensus Algorithm";

function entries(first: number, terms: readonly number[]): Entry[] {
  return terms.map((term, i) => ({ term, index: first + i, type: "EntryNormal", data: NO_DATA }));
}

/** Node 1 as leader whose first entry is stored everywhere. */
function leader(voters: readonly number[] = [1, 2, 3]): TestNode {
  const node = new TestNode(1, { voters });
  node.raw.campaign();
  node.work();
  const { term } = node.status;
  const others = voters.filter((id) => id !== 1);
  for (const from of others) {
    node.take(createMessage({ type: "MsgVoteResp", to: 1, from, term }));
  }
  for (const from of others) {
    node.take(createMessage({ type: "MsgAppResp", to: 1, from, term, index: 2 }));
  }
  expect(node.status).toMatchObject({ role: "leader", commit: 2 });
  return node;
}

describe(`replication (${RAFT}, section 5.3)`, () => {
  it("a leader stores a proposal and sends it with the preceding entry", () => {
    const node = leader();
    node.raw.propose(bytes("some"));
    const sent = node.work();
    expect(node.storage.lastIndex()).toBe(3);
    expect(node.status.commit).toBe(2);
    expect(sent).toHaveLength(2);
    for (const message of sent) {
      expect(message).toMatchObject({ type: "MsgApp", index: 2, logTerm: 2, commit: 2 });
      expect(message.entries.map(text)).toEqual(["some"]);
    }
  });

  it("a leader commits and applies what a majority stores, and sends the commit index", () => {
    const node = leader();
    node.raw.propose(bytes("some"));
    node.work();
    const reported = node.take(
      createMessage({ type: "MsgAppResp", to: 1, from: 2, term: 2, index: 3 }),
    );
    expect(node.status.commit).toBe(3);
    expect(node.applied.map(text)).toEqual(["", "some"]);
    expect(reported.map(({ type, to, commit }) => [type, to, commit])).toEqual([
      ["MsgApp", 2, 3],
      ["MsgApp", 3, 3],
    ]);
  });

  it.each([
    [1, [], true],
    [3, [], false],
    [3, [2], true],
    [3, [2, 3], true],
    [5, [], false],
    [5, [2], false],
    [5, [2, 3], true],
    [5, [2, 3, 4, 5], true],
  ])(
    "of %i nodes, with acknowledgements of %j an entry is committed: %s",
    (size, from, committed) => {
      const node = leader(Array.from({ length: size }, (_, i) => i + 1));
      node.raw.propose(bytes("some"));
      node.work();
      for (const id of from) {
        node.take(createMessage({ type: "MsgAppResp", to: 1, from: id, term: 2, index: 3 }));
      }
      expect(node.status.commit).toBe(committed ? 3 : 2);
    },
  );

  it.each([[[]], [[2]], [[1, 2]], [[1]]])(
    "a commit includes the entries of earlier leaders, here %j",
    (terms) => {
      const group = new TestGroup([1, 2, 3], () => ({ terms, term: 2 }));
      group.elect(1);
      group.propose(1, "some");
      const expected = [...terms, 3, 3].map((term, i) => `${term}/${i + 2}`);
      for (const node of group.nodes.values()) {
        expect(node.applied.map(({ term, index }) => `${term}/${index}`)).toEqual(expected);
      }
    },
  );

  it("a follower applies what the leader has committed, in order", () => {
    const node = new TestNode(1);
    const sent = entries(2, [2, 2]);
    const append = { type: "MsgApp", to: 1, from: 2, term: 2, index: 1, logTerm: 1 } as const;
    node.take(createMessage({ ...append, entries: sent, commit: 2 }));
    expect(node.applied.map(({ index }) => index)).toEqual([2]);
    node.take(createMessage({ ...append, index: 3, logTerm: 2, commit: 3 }));
    expect(node.applied.map(({ index }) => index)).toEqual([2, 3]);
  });

  // holds: raft-commit-bound
  it.each([
    ["no entries", 2, 1, [], 2],
    ["one entry that it has", 2, 1, [2], 3],
    ["an entry in place of its own", 3, 2, [4], 4],
  ])(
    "a follower commits nothing beyond what it was sent: %s",
    (_, index, logTerm, sent, commit) => {
      // After the sent entries are entries of its own, which the leader may not have.
      const node = new TestNode(1, { terms: [1, 2, 3, 3], term: 4, commit: 1 });
      const append = { type: "MsgApp", to: 1, from: 2, term: 4, index, logTerm } as const;
      node.take(createMessage({ ...append, entries: entries(index + 1, sent), commit: 9 }));
      expect(node.status.commit).toBe(commit);
    },
  );

  it.each([
    [1, 1, 3, undefined],
    [1, 2, 3, undefined],
    [2, 3, 4, undefined],
    [3, 3, 3, { hint: 3, term: 2 }],
    [2, 4, 3, { hint: 3, term: 2 }],
  ])(
    "after %i/%i with the log 1,1,2 a follower's answer to %i is checked",
    (logTerm, index, term, refusal) => {
      const node = new TestNode(1, { terms: [1, 2], term: 2, commit: 2 });
      const [answer] = node.take(
        createMessage({ type: "MsgApp", to: 1, from: 2, term, index, logTerm }),
      );
      if (!refusal) {
        expect(answer).toMatchObject({ type: "MsgAppResp", reject: false });
        return;
      }
      expect(answer).toMatchObject({ reject: true, index, rejectHint: refusal.hint });
      expect(answer?.logTerm).toBe(refusal.term);
    },
  );

  it.each([
    [3, 2, [3], [1, 2, 3]],
    [2, 1, [3, 4], [1, 3, 4]],
    [1, 1, [1], [1, 2]],
    [1, 1, [3], [3]],
  ])(
    "an append after %i/%i of the terms %j makes the log 1,2 into %j",
    (index, logTerm, terms, after) => {
      const node = new TestNode(1, { terms: [1, 2], term: 4, commit: 1 });
      node.take(
        createMessage({
          type: "MsgApp",
          to: 1,
          from: 2,
          term: 4,
          index,
          logTerm,
          entries: entries(index + 1, terms),
        }),
      );
      expect(node.terms).toEqual(after);
    },
  );

  it.each([
    [[1, 1, 1, 4, 4, 5, 5, 6, 6]],
    [[1, 1, 1, 4]],
    [[1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6]],
    [[1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7]],
    [[1, 1, 1, 4, 4, 4, 4]],
    [[1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3]],
  ])("a leader brings the follower with the terms %j of figure 7 into line", (terms) => {
    const lead = [1, 1, 1, 4, 4, 5, 5, 6, 6, 6];
    // Node 3's vote elects node 1 where node 2 has reason to reject.
    const group = new TestGroup([1, 2, 3], (id) => ({
      terms: id === 2 ? terms : lead,
      term: 8,
    }));
    group.elect(1);
    group.propose(1, "");
    expect(group.node(1).status.role).toBe("leader");
    expect(group.node(2).terms).toEqual([...lead, 9, 9]);
    expect(group.node(2).status.commit).toBe(group.node(1).status.commit);
  });
});

describe(`commitment (${RAFT}, section 5.4.2)`, () => {
  it.each([
    [2, 1],
    [3, 1],
    [4, 4],
  ])(
    "a leader of term 3 with the terms 1,2,3 commits by copies up to %i only %i",
    (index, commit) => {
      const node = new TestNode(1, { terms: [1, 2], term: 2, voters: [1, 2] });
      node.raw.campaign();
      node.work();
      node.take(createMessage({ type: "MsgVoteResp", to: 1, from: 2, term: 3 }));
      node.take(createMessage({ type: "MsgAppResp", to: 1, from: 2, term: 3, index }));
      expect(node.status.commit).toBe(commit);
    },
  );
});

// holds: raft-paper

import { describe, expect, it } from "vitest";
import { ELECTION_TICKS, TestGroup, TestNode } from "../testing/test-group.ts";
import { createMessage, type MessageType } from "./message.ts";

const RAFT = "Ongaro and Ousterhout, In Search of an Understandable Consensus Algorithm";

/** Three nodes' node 1 in each role, in term 2 or above. */
function inRole(role: "follower" | "candidate" | "leader"): TestNode {
  const node = new TestNode(1, { term: 1 });
  if (role === "follower") {
    node.take(createMessage({ type: "MsgHeartbeat", to: 1, from: 2, term: 2 }));
  } else {
    node.timeOut();
  }
  const { term } = node.status;
  if (role === "leader") node.take(createMessage({ type: "MsgVoteResp", to: 1, from: 2, term }));
  expect(node.status.role).toBe(role);
  return node;
}

describe(`terms (${RAFT}, section 5.1)`, () => {
  it.each(["follower", "candidate", "leader"] as const)(
    "a %s that sees a higher term becomes a follower of it",
    (role) => {
      const node = inRole(role);
      const term = node.status.term + 3;
      node.take(createMessage({ type: "MsgApp", to: 1, from: 3, term, index: 1, logTerm: 1 }));
      expect(node.status).toMatchObject({ role: "follower", term, lead: 3, vote: 0 });
    },
  );

  it.each<MessageType>(["MsgApp", "MsgHeartbeat", "MsgSnap", "MsgVote", "MsgVoteResp"])(
    "a stale %s changes nothing",
    (type) => {
      const node = new TestNode(1, { term: 5 });
      const before = node.status;
      const answers = node.take(createMessage({ type, to: 1, from: 2, term: 4, index: 9 }));
      expect(answers).toEqual([]);
      expect(node.status).toEqual(before);
    },
  );
});

describe(`elections (${RAFT}, section 5.2)`, () => {
  it("a node starts as a follower without a leader", () => {
    expect(new TestNode(1).status).toMatchObject({ role: "follower", lead: 0 });
  });

  it("a leader sends every follower an empty heartbeat each heartbeat interval", () => {
    const beats = inRole("leader")
      .tick(1)
      .filter(({ type }) => type === "MsgHeartbeat");
    expect(beats.map(({ to, index, logTerm, entries }) => [to, index, logTerm, entries])).toEqual([
      [2, 0, 0, []],
      [3, 0, 0, []],
    ]);
  });

  it.each(["follower", "candidate"] as const)(
    "election timeout: a %s raises its term and requests all votes",
    (role) => {
      const node = inRole(role);
      const { term } = node.status;
      const asked: (number | string)[][] = [];
      while (node.status.term === term) {
        asked.push(...node.tick(1).map(({ type, to, term: of }) => [type, to, of]));
      }
      expect(node.status).toMatchObject({ role: "candidate", term: term + 1, vote: 1, lead: 0 });
      expect(asked).toEqual([
        ["MsgVote", 2, term + 1],
        ["MsgVote", 3, term + 1],
      ]);
    },
  );

  it.each([
    [1, [], [], "leader"],
    [3, [2, 3], [], "leader"],
    [3, [2], [], "leader"],
    [5, [2, 3, 4, 5], [], "leader"],
    [5, [2, 3], [], "leader"],
    [3, [], [2, 3], "follower"],
    [5, [], [2, 3, 4], "follower"],
    [5, [2], [3, 4, 5], "follower"],
    [3, [], [], "candidate"],
    [5, [2], [], "candidate"],
    [5, [2], [3, 4], "candidate"],
  ] as const)(
    "of %i nodes, granted by %j and refused by %j: %s",
    (size, granted, refused, role) => {
      const voters = Array.from({ length: size }, (_, i) => i + 1);
      const node = new TestNode(1, { voters });
      node.raw.campaign();
      node.work();
      const { term } = node.status;
      for (const from of [...granted, ...refused]) {
        const reject = (refused as readonly number[]).includes(from);
        node.take(createMessage({ type: "MsgVoteResp", to: 1, from, term, reject }));
      }
      expect(node.status.role).toBe(role);
      expect(node.status.term).toBe(term);
    },
  );

  it.each([
    [0, 2, true],
    [0, 3, true],
    [2, 2, true],
    [3, 3, true],
    [2, 3, false],
    [3, 2, false],
  ])("a follower that voted for %i gives %i its vote: %s", (vote, from, granted) => {
    const node = new TestNode(1, { term: 4, vote });
    const request = createMessage({ type: "MsgVote", to: 1, from, term: 4, index: 1, logTerm: 1 });
    const [answer] = node.take(request);
    expect(answer).toMatchObject({ type: "MsgVoteResp", to: from, term: 4, reject: !granted });
    expect(node.storage.initialState().hardState.vote).toBe(granted ? from : vote);
  });

  it.each([0, 1])("a candidate yields to a leader whose term is %i above its own", (ahead) => {
    const node = inRole("candidate");
    const term = node.status.term + ahead;
    node.take(createMessage({ type: "MsgApp", to: 1, from: 2, term, index: 1, logTerm: 1 }));
    expect(node.status).toMatchObject({ role: "follower", term, lead: 2 });
  });

  it("election timeouts are spread over [electionTicks, 2 * electionTicks)", () => {
    const node = new TestNode(1);
    const waits = new Set<number>();
    for (let round = 0; round < 40 * ELECTION_TICKS; round++) {
      const { term } = node.status;
      let wait = 0;
      for (; node.status.term === term; wait++) node.tick(1);
      waits.add(wait);
    }
    const all = Array.from({ length: ELECTION_TICKS }, (_, i) => ELECTION_TICKS + i);
    expect([...waits].sort((a, b) => a - b)).toEqual(all);
  });

  it("mostly one of five followers times out before the others", () => {
    let conflicts = 0;
    const rounds = 500;
    const nodes = [1, 2, 3, 4, 5].map((id) => new TestNode(id, { voters: [1, 2, 3, 4, 5] }));
    for (let round = 0; round < rounds; round++) {
      const term = Math.max(...nodes.map((node) => node.status.term)) + 1;
      for (const node of nodes) {
        node.take(createMessage({ type: "MsgHeartbeat", to: node.status.id, from: 6, term }));
      }
      while (nodes.every((node) => node.status.term === term)) {
        for (const node of nodes) node.tick(1);
      }
      if (nodes.filter((node) => node.status.term > term).length > 1) conflicts++;
    }
    expect(conflicts / rounds).toBeLessThan(0.4);
  });
});

describe(`the election restriction (${RAFT}, section 5.4.1)`, () => {
  it("a vote request carries the candidate's last entry", () => {
    const node = new TestNode(1, { terms: [1, 2] });
    const requests = node.timeOut().slice(0, 2);
    expect(requests.map(({ to, index, logTerm }) => [to, index, logTerm])).toEqual([
      [2, 3, 2],
      [3, 3, 2],
    ]);
  });

  it.each([
    [[1], 1, 2, true],
    [[1], 1, 3, true],
    [[1, 1], 1, 2, false],
    [[1], 2, 2, true],
    [[1], 2, 3, true],
    [[1, 1], 2, 2, true],
    [[2], 1, 2, false],
    [[2], 1, 3, false],
    [[2, 1], 1, 2, false],
  ])(
    "a voter with the terms %j grants a log that ends with %i/%i: %s",
    (terms, logTerm, index, ok) => {
      const node = new TestNode(1, { terms, term: 3 });
      const request = createMessage({ type: "MsgVote", to: 1, from: 2, term: 4, index, logTerm });
      expect(node.take(request)[0]).toMatchObject({ type: "MsgVoteResp", reject: !ok });
    },
  );
});

describe("pre-vote and the quorum check (Ongaro's thesis, sections 9.6 and 6.2)", () => {
  const careful = () => ({ preVote: true, checkQuorum: true });

  // holds: raft-prevote
  it("a node that was cut off does not disturb the leader when it rejoins", () => {
    const group = new TestGroup([1, 2, 3], careful);
    group.elect(1);
    const { term } = group.node(1).status;
    group.cut(3);
    group.node(3).timeOut();
    group.mend();
    group.beat(1);
    expect(group.node(1).status).toMatchObject({ role: "leader", term });
    expect(group.node(3).status).toMatchObject({ role: "follower", term, lead: 1 });
  });

  // holds: raft-prevote
  it("a leader without a quorum steps down within two election timeouts", () => {
    const group = new TestGroup([1, 2, 3], careful);
    group.elect(1);
    group.cut(1);
    group.node(1).tick(2 * ELECTION_TICKS);
    expect(group.node(1).status).toMatchObject({ role: "follower", lead: 0 });
  });

  // holds: raft-prevote
  it("a follower whose ticks arrive late restarts its timer and does not campaign", () => {
    const group = new TestGroup([1, 2, 3], careful);
    group.elect(1);
    const node = group.node(2);
    node.raw.tick(50 * ELECTION_TICKS);
    expect(node.work()).toEqual([]);
    expect(node.status).toMatchObject({ role: "follower", lead: 1 });
    node.tick(ELECTION_TICKS - 1);
    expect(node.status.role).toBe("follower");
    node.timeOut();
    expect(node.status.role).toBe("preCandidate");
  });

  it("a leader whose ticks arrive late sends its heartbeats and stays", () => {
    const group = new TestGroup([1, 2, 3], careful);
    group.elect(1);
    group.node(1).raw.tick(50 * ELECTION_TICKS);
    const types = group
      .node(1)
      .work()
      .map(({ type }) => type);
    expect(types).toEqual(["MsgHeartbeat", "MsgHeartbeat"]);
    expect(group.node(1).status.role).toBe("leader");
  });
});

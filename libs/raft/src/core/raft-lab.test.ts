// holds: raft-lab

import { seededRandom } from "@heddle/base/random";
import { describe, expect, it } from "vitest";
import { ELECTION_TICKS, TestGroup, type TestNode } from "../testing/test-group.ts";

// The scenarios of the Raft labs of MIT 6.5840 (Distributed Systems), by their names.

const careful = { preVote: true, checkQuorum: true };
const ROUNDS = 3 * ELECTION_TICKS;

function made(size: number, setup = {}): TestGroup {
  const ids = Array.from({ length: size }, (_, i) => i + 1);
  return new TestGroup(ids, () => ({ ...careful, ...setup }));
}

/** Waits for a leader among the nodes that are not cut off. */
function leaderOf(group: TestGroup): TestNode {
  for (let i = 0; i < 10 && !group.leader; i++) group.run(ROUNDS);
  const { leader } = group;
  if (!leader) throw new Error("no leader was elected in time");
  return leader;
}

/** Proposes on the leader until a value is applied there. */
function agree(group: TestGroup, value: string): void {
  for (let i = 0; i < 20; i++) {
    const leader = leaderOf(group);
    group.propose(leader.status.id, value);
    group.run(2);
    if (leader.values.includes(value)) return;
    group.run(ROUNDS);
  }
  throw new Error(`${value} was not agreed on in time`);
}

function allHave(group: TestGroup, values: readonly string[]): void {
  group.run(ROUNDS);
  for (const node of group.nodes.values()) expect(node.values).toEqual(values);
}

function id(node: TestNode): number {
  return node.status.id;
}

/** The ids of all nodes but those given. */
function others(group: TestGroup, ...not: number[]): number[] {
  return [...group.nodes.keys()].filter((one) => !not.includes(one));
}

describe("2A: leader election", () => {
  it("initial election: one leader, whose term stays while there is no failure", () => {
    const group = made(3);
    const { term } = leaderOf(group).status;
    group.run(5 * ROUNDS);
    expect([...group.nodes.values()].map(({ status }) => status.term)).toEqual([term, term, term]);
  });

  it("election after network failure: the old leader rejoins; no leader without quorum", () => {
    const group = made(3);
    const first = id(leaderOf(group));
    group.cut(first);
    const second = id(leaderOf(group));
    expect(second).not.toBe(first);
    group.mend();
    group.run(ROUNDS);
    expect(group.leader?.status.id).toBe(second);
    group.cut(second, first);
    group.run(5 * ROUNDS);
    expect(group.leader).toBeUndefined();
    group.mend();
    leaderOf(group);
  });

  it("multiple elections: with three of seven cut off there is always a leader", () => {
    const group = made(7);
    const random = seededRandom(7);
    for (let i = 0; i < 10; i++) {
      leaderOf(group);
      group.cut(...[1, 2, 3].map(() => 1 + Math.floor(random() * 7)));
      leaderOf(group);
      group.mend();
    }
  });
});

describe("2B: log", () => {
  it("basic agreement", () => {
    const group = made(3);
    for (const value of ["a", "b", "c"]) agree(group, value);
    allHave(group, ["a", "b", "c"]);
  });

  it("RPC byte count: each command is sent to each peer just once", () => {
    const group = made(3);
    const leader = leaderOf(group);
    let sentBytes = 0;
    group.loses = ({ entries }) => {
      for (const { data } of entries) sentBytes += data.length;
      return false;
    };
    for (let i = 0; i < 10; i++) group.propose(id(leader), `${i}`.repeat(5000));
    expect(sentBytes).toBe(10 * 5000 * 2);
  });

  it("progressive failure of followers: agreement ends with the majority", () => {
    const group = made(3);
    agree(group, "a");
    const [first = 0, second = 0] = others(group, id(leaderOf(group)));
    group.cut(first);
    agree(group, "b");
    const leader = leaderOf(group);
    group.cut(first, second, id(leader));
    group.propose(id(leader), "lost");
    group.run(2 * ROUNDS);
    for (const node of group.nodes.values()) expect(node.values).not.toContain("lost");
  });

  it("failure of leaders: the next one continues, and without a majority none does", () => {
    const group = made(3);
    agree(group, "a");
    const first = id(leaderOf(group));
    group.cut(first);
    agree(group, "b");
    const second = leaderOf(group);
    group.cut(first, id(second));
    for (const one of group.nodes.keys()) group.propose(one, "lost");
    group.run(2 * ROUNDS);
    for (const node of group.nodes.values()) expect(node.values).not.toContain("lost");
  });

  it("agreement after follower reconnects, and while it is disconnected", () => {
    const group = made(3);
    agree(group, "a");
    const [follower = 0] = others(group, id(leaderOf(group)));
    group.cut(follower);
    agree(group, "b");
    group.mend();
    agree(group, "c");
    allHave(group, ["a", "b", "c"]);
  });

  it("no agreement if too many followers disconnect", () => {
    const group = made(5);
    const leader = leaderOf(group);
    group.cut(...others(group, id(leader)).slice(0, 3));
    group.propose(id(leader), "lost");
    group.run(2 * ROUNDS);
    expect(leader.values).toEqual([]);
    group.mend();
    agree(group, "kept");
    expect(leaderOf(group).values.at(-1)).toBe("kept");
  });

  it("concurrent Start()s all get an index", () => {
    const group = made(3);
    const leader = leaderOf(group);
    const values = ["1", "2", "3", "4", "5"];
    for (const value of values) leader.raw.propose(new TextEncoder().encode(value));
    group.settle();
    allHave(group, values);
  });

  it("rejoin of partitioned leader: its entries are replaced", () => {
    const group = made(3);
    agree(group, "a");
    const old = id(leaderOf(group));
    group.cut(old);
    for (const value of ["x", "y", "z"]) group.propose(old, value);
    agree(group, "b");
    group.mend();
    agree(group, "c");
    allHave(group, ["a", "b", "c"]);
  });

  it("leader backs up quickly over incorrect follower logs", () => {
    const group = made(5);
    agree(group, "a");
    const old = id(leaderOf(group));
    const [near = 0, ...far] = others(group, old);
    group.cut(...far);
    for (let i = 0; i < 50; i++) group.propose(old, `lost ${i}`);
    group.mend();
    group.cut(old, near);
    for (let i = 0; i < 50; i++) agree(group, `kept ${i}`);
    group.delivered.clear();
    group.mend();
    group.run(2 * ROUNDS);
    allHave(group, ["a", ...Array.from({ length: 50 }, (_, i) => `kept ${i}`)]);
    expect(group.delivered.get("MsgApp") ?? 0).toBeLessThan(30);
  });

  it("RPC counts aren't too high", () => {
    const group = made(3);
    const leader = leaderOf(group);
    group.delivered.clear();
    for (let i = 0; i < 10; i++) group.propose(id(leader), `${i}`);
    const total = [...group.delivered.values()].reduce((sum, count) => sum + count, 0);
    expect(total).toBeLessThanOrEqual(10 * 2 * 4);
    group.delivered.clear();
    group.run(ELECTION_TICKS);
    expect(group.delivered.get("MsgHeartbeat")).toBe(2 * ELECTION_TICKS);
    expect(group.delivered.get("MsgApp")).toBeUndefined();
  });
});

describe("2C: persistence", () => {
  it("basic persistence", () => {
    const group = made(3);
    agree(group, "a");
    group.restart(1, 2, 3);
    agree(group, "b");
    group.restart(id(leaderOf(group)));
    agree(group, "c");
    group.run(ROUNDS);
    allHave(group, ["a", "b", "c"]);
  });

  it("more persistence: majorities change with each restart", () => {
    const group = made(5);
    const values: string[] = [];
    for (let i = 0; i < 10; i++) {
      const down = [1, 2].map((offset) => 1 + ((i + offset) % 5));
      group.cut(...down);
      agree(group, `${i}`);
      values.push(`${i}`);
      group.restart(...down);
      group.mend();
      group.run(ROUNDS);
    }
    allHave(group, values);
  });

  it("partitioned leader and one follower crash, leader restarts", () => {
    const group = made(3);
    agree(group, "a");
    const old = id(leaderOf(group));
    const [near = 0, far = 0] = others(group, old);
    group.cut(far);
    agree(group, "b");
    group.cut(old);
    group.restart(old, near);
    group.mend();
    group.cut(near);
    agree(group, "c");
    group.mend();
    allHave(group, ["a", "b", "c"]);
  });

  it.each([1, 2, 3])(
    "figure 8, with seed %i: leaders crash before and after they replicate",
    (seed) => {
      const random = seededRandom(seed);
      const group = made(5);
      for (let i = 0; i < 60; i++) {
        const leader = group.leader ?? leaderOf(group);
        group.loses = () => random() < 0.4;
        group.propose(id(leader), `${i}`);
        group.loses = () => false;
        if (random() < 0.5) {
          group.cut(id(leader));
          group.restart(id(leader));
        }
        leaderOf(group);
        group.mend();
      }
      agree(group, "end");
      allHave(group, leaderOf(group).values);
    },
  );

  it.each([1, 2, 3])(
    "figure 8 (unreliable), with seed %i: leaders lose their links and messages",
    (seed) => {
      const random = seededRandom(seed);
      const group = made(5);
      let away: number[] = [];
      for (let i = 0; i < 60; i++) {
        group.loses = () => random() < 0.1;
        const { leader } = group;
        if (leader) group.propose(id(leader), `${i}`);
        group.run(1 + Math.floor(random() * 3));
        if (leader && random() < 0.5) away.push(id(leader));
        // Of five nodes three must stay connected for progress.
        if (away.length > 2) away = away.slice(1);
        group.mend();
        group.cut(...away);
        group.run(Math.floor(random() * ROUNDS));
      }
      group.mend();
      group.loses = () => false;
      agree(group, "end");
      allHave(group, leaderOf(group).values);
    },
  );

  it.each([
    ["unreliable agreement", { loss: 0.1, churn: false }],
    ["churn", { loss: 0, churn: true }],
    ["unreliable churn", { loss: 0.1, churn: true }],
  ])("%s", (_, { loss, churn }) => {
    const random = seededRandom(5);
    const group = made(5);
    group.loses = () => random() < loss;
    for (let i = 0; i < 60; i++) {
      agree(group, `${i}`);
      if (!churn) continue;
      if (random() < 0.3) group.restart(1 + Math.floor(random() * 5));
      if (random() < 0.3) group.cut(1 + Math.floor(random() * 5));
      if (random() < 0.6) group.mend();
    }
    group.mend();
    group.loses = () => false;
    agree(group, "end");
    allHave(group, leaderOf(group).values);
    for (let i = 0; i < 60; i++) expect(leaderOf(group).values).toContain(`${i}`);
  });
});

describe("2D: log compaction", () => {
  it("snapshots basic: all nodes compact and continue", () => {
    const group = made(3);
    for (let i = 0; i < 20; i++) {
      agree(group, `${i}`);
      if (i % 5 === 4) for (const node of group.nodes.values()) node.compact();
    }
    allHave(
      group,
      Array.from({ length: 20 }, (_, i) => `${i}`),
    );
  });

  it.each([
    ["disconnect", { crash: false, loss: 0 }],
    ["disconnect and unreliable", { crash: false, loss: 0.1 }],
    ["crash", { crash: true, loss: 0 }],
    ["unreliable and crash", { crash: true, loss: 0.1 }],
  ])("install snapshots (%s)", (_, { crash, loss }) => {
    const random = seededRandom(11);
    const group = made(3);
    group.loses = ({ type }) => type !== "MsgSnap" && random() < loss;
    for (let i = 0; i < 12; i++) {
      agree(group, `${i} a`);
      const [away = 0] = others(group, id(leaderOf(group)));
      group.cut(away);
      for (const part of ["b", "c", "d"]) agree(group, `${i} ${part}`);
      leaderOf(group).compact();
      if (crash) group.restart(away);
      group.mend();
      group.run(ROUNDS);
    }
    group.loses = () => false;
    agree(group, "end");
    allHave(group, leaderOf(group).values);
    expect(group.delivered.get("MsgSnap") ?? 0).toBeGreaterThan(0);
  });

  it("crash and restart all nodes", () => {
    const group = made(3);
    for (let i = 0; i < 10; i++) agree(group, `${i}`);
    for (const node of group.nodes.values()) node.compact();
    group.restart(1, 2, 3);
    agree(group, "end");
    allHave(group, [...Array.from({ length: 10 }, (_, i) => `${i}`), "end"]);
  });

  it("snapshot initialization after crash: the state is restored before anything new", () => {
    const group = made(3);
    agree(group, "a");
    for (const node of group.nodes.values()) node.compact();
    group.restart(1, 2, 3);
    for (const node of group.nodes.values()) expect(node.values).toEqual(["a"]);
  });
});

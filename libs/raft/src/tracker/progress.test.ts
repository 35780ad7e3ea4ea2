import { describe, expect, it } from "vitest";
import { resolveConfig } from "../core/config.ts";
import { createMessage } from "../core/message.ts";
import { MemoryStorage } from "../log/memory-storage.ts";
import { bytes, TestNode } from "../testing/test-group.ts";
import { Inflights } from "./inflights.ts";
import { Progress } from "./progress.ts";

// Mutations of the leader's bookkeeping that no scenario test detects.

/** Node 1 as leader of three; the named peers have stored its first entry. */
function leader(acknowledged: readonly number[]): TestNode {
  const node = new TestNode(1, { voters: [1, 2, 3] });
  node.raw.campaign();
  node.work();
  for (const from of [2, 3]) {
    node.take(createMessage({ type: "MsgVoteResp", to: 1, from, term: 2 }));
  }
  for (const from of acknowledged) node.take(acknowledgement(from, 2));
  return node;
}

const acknowledgement = (from: number, index: number) =>
  createMessage({ type: "MsgAppResp", to: 1, from, term: 2, index });

const rejection = (from: number, index: number) =>
  createMessage({
    type: "MsgAppResp",
    to: 1,
    from,
    term: 2,
    reject: true,
    index,
    rejectHint: index,
    logTerm: 2,
  });

describe("progress of a peer", () => {
  it("a rejection of what the peer has acknowledged is stale", () => {
    const node = leader([2, 3]);
    expect(node.take(rejection(2, 2))).toEqual([]);
    expect(node.status.progress.get(2)).toMatchObject({ state: "replicate", match: 2, next: 3 });
    node.raw.propose(bytes("x"));
    node.work();
    expect(node.take(rejection(2, 3))).toHaveLength(1);
    expect(node.status.progress.get(2)).toMatchObject({ state: "probe", match: 2 });
  });

  it("an append without entries does not pause a probe, one with entries does", () => {
    const inflights = new Inflights(4, 100);
    const progress = new Progress({
      match: 1,
      next: 2,
      inflights,
      isLearner: false,
      recentActive: true,
    });
    const paused = [0, 1].map((count) => {
      progress.sentEntries(count, count);
      return progress.appendsPaused;
    });
    expect(paused).toEqual([false, true]);
  });

  it("a peer that catches up late gets the commit index at once", () => {
    const node = leader([2]);
    expect(node.status.commit).toBe(2);
    const [reported, ...others] = node.take(acknowledgement(3, 2));
    expect(reported).toMatchObject({ type: "MsgApp", to: 3, commit: 2, entries: [] });
    expect(others).toEqual([]);
  });
});

describe("a stale leader", () => {
  it.each([
    [true, true, 1],
    [true, false, 1],
    [false, true, 1],
    [false, false, 0],
  ])("is answered under checkQuorum %s, preVote %s: %i time", (checkQuorum, preVote, answers) => {
    for (const type of ["MsgHeartbeat", "MsgApp"] as const) {
      const node = new TestNode(1, { voters: [1, 2, 3], term: 5, checkQuorum, preVote });
      const sent = node.take(createMessage({ type, to: 1, from: 2, term: 4 }));
      expect(sent.map((message) => [message.type, message.term])).toEqual(
        Array(answers).fill(["MsgAppResp", 5]),
      );
    }
  });
});

describe("the defaults of a node", () => {
  it("protect leadership, and each can be turned off", () => {
    const least = {
      id: 1,
      electionTicks: 10,
      heartbeatTicks: 1,
      random: () => 0,
      storage: new MemoryStorage(),
    };
    expect(resolveConfig(least)).toMatchObject({
      checkQuorum: true,
      preVote: true,
      readMode: "quorum",
      commitInRefusedVotes: true,
      disableProposalForwarding: false,
      disableConfChangeValidation: false,
      asyncStorageWrites: false,
      stepDownOnRemoval: false,
      handOverOnRemoval: true,
      applied: 0,
      maxMessageBytes: 2 ** 20,
      maxApplyingBytes: 2 ** 20,
      maxUncommittedBytes: 2 ** 26,
      maxInflightMessages: 256,
      maxInflightBytes: 2 ** 26,
      maxPendingReads: 65_536,
      lateTicks: 5,
    });
    const off = { checkQuorum: false, preVote: false, commitInRefusedVotes: false } as const;
    expect(resolveConfig({ ...least, ...off })).toMatchObject(off);
    expect(resolveConfig({ ...least, stepDownOnRemoval: true }).handOverOnRemoval).toBe(false);
  });
});

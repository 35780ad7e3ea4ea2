import { describe, expect, it, vi } from "vitest";
import { RaftLog } from "../log/raft-log.ts";
import { SafetyViolation } from "../testing/safety-checker.ts";
import { SimulatedCluster } from "../testing/simulated-cluster.ts";
import type { SeededNodeBug } from "../testing/simulated-node.ts";

/** HEDDLE_RAFT_SEED sets another first seed: HEDDLE_RAFT_SEED=7 vitest run. */
const FIRST_SEED = Number(process.env["HEDDLE_RAFT_SEED"] ?? 1);
const SEEDS = Number(process.env["HEDDLE_RAFT_SEEDS"] ?? 40);
const STEPS = 10_000;

function runSeed(seed: number): SimulatedCluster["counts"] {
  const cluster = new SimulatedCluster(seed);
  try {
    cluster.run(STEPS);
    cluster.heal(400);
  } catch (error) {
    throw new Error(`seed ${seed} (repeat with HEDDLE_RAFT_SEED=${seed} HEDDLE_RAFT_SEEDS=1)`, {
      cause: error,
    });
  }
  return cluster.counts;
}

/** The first seed whose run violates a property. */
function firstCaught(bug: SeededNodeBug | undefined, seeds = 300): number | undefined {
  for (let seed = 1; seed <= seeds; seed++) {
    const cluster = new SimulatedCluster(seed, bug);
    try {
      cluster.run(STEPS);
      cluster.heal(400);
    } catch (error) {
      if (error instanceof SafetyViolation) return seed;
      // The core may also detect the broken invariant itself.
      if (/raft invariant broken/.test(String(error))) return seed;
      throw error;
    }
  }
  return undefined;
}

describe("a cluster under message faults, partitions, crashes and membership changes", () => {
  it(`keeps every safety property and heals, for ${SEEDS} seeds from ${FIRST_SEED}`, () => {
    const total = { crashes: 0, confChanges: 0, reads: 0, delivered: 0 };
    for (let seed = FIRST_SEED; seed < FIRST_SEED + SEEDS; seed++) {
      const counts = runSeed(seed);
      for (const key of Object.keys(total) as (keyof typeof total)[]) total[key] += counts[key];
    }
    console.log(`raft simulation: seeds ${FIRST_SEED}..${FIRST_SEED + SEEDS - 1}`, total);
    if (SEEDS >= 20) {
      expect(total.crashes).toBeGreaterThan(SEEDS);
      expect(total.confChanges).toBeGreaterThan(SEEDS);
      expect(total.reads).toBeGreaterThan(SEEDS);
    }
  });
});

// holds: raft-planted-core
describe("the checker catches", () => {
  it("a disk that acknowledges writes before they are durable", () => {
    expect(firstCaught("skipFsync")).toBeDefined();
  });

  it("a vote that is forgotten in a crash", () => {
    expect(firstCaught("forgetVote")).toBeDefined();
  });

  it("reads by lease where clocks differ", () => {
    expect(firstCaught("leaseRead")).toBeDefined();
  });

  it("a leader that commits entries of old terms by counting copies", () => {
    const spy = vi.spyOn(RaftLog.prototype, "maybeCommit");
    spy.mockImplementation(function (this: RaftLog, { index }) {
      if (index <= this.committed) return false;
      this.commitTo(index);
      return true;
    });
    try {
      expect(firstCaught(undefined)).toBeDefined();
    } finally {
      spy.mockRestore();
    }
  });

  it("a leader that does not begin its term with an entry of its own", () => {
    const { append, maybeAppend } = RaftLog.prototype;
    let isFollowing = false;
    const following = vi.spyOn(RaftLog.prototype, "maybeAppend");
    following.mockImplementation(function (this: RaftLog, slice, commit) {
      isFollowing = true;
      const last = maybeAppend.call(this, slice, commit);
      isFollowing = false;
      return last;
    });
    const leading = vi.spyOn(RaftLog.prototype, "append");
    leading.mockImplementation(function (this: RaftLog, entries) {
      const [first] = entries;
      const isOwn = !isFollowing && first?.type === "EntryNormal" && first.data.length === 0;
      return append.call(this, isOwn ? [] : entries);
    });
    try {
      expect(firstCaught(undefined)).toBeDefined();
    } finally {
      following.mockRestore();
      leading.mockRestore();
    }
  });
});

// holds: engine-batching

import { seededRandom } from "@heddle/base/random";
import { describe, expect, it } from "vitest";
import { DecodeGrouping } from "./decode-grouping.ts";

/** A machine on which a call for this many sequences takes this long. */
function machine(costMs: (sequences: number) => number) {
  let nowMs = 0;
  const grouping = new DecodeGrouping(16, () => nowMs);
  /** Runs rounds; gives the sizes of the calls of each. */
  return (count: number, rounds: number): number[][] =>
    Array.from({ length: rounds }, () => {
      const sizes: number[] = [];
      let gathered = false;
      const gather = () => {
        expect(sizes).toEqual([]);
        gathered = true;
        // Moving sequences takes its time, which says nothing of the calls.
        nowMs += 1000;
      };
      grouping.run(count, gather, (at, size) => {
        expect(at).toBe(sizes.reduce((sum, earlier) => sum + earlier, 0));
        expect(size === 1 || gathered).toBe(true);
        sizes.push(size);
        nowMs += costMs(size);
      });
      expect(sizes.reduce((sum, size) => sum + size, 0)).toBe(count);
      return sizes;
    });
}

/** How many calls most of the last rounds had: the others compare. */
function usualCalls(rounds: readonly number[][]): number {
  const calls = rounds.slice(-9).map((sizes) => sizes.length);
  return calls.toSorted((a, b) => a - b)[4] as number;
}

/** One normally distributed number. */
function gaussian(random: () => number): number {
  return Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
}

/**
 * Rounds of eight on a machine with 20 % of noise, where one call in a hundred takes three times as long.
 * Returns the loss against the better way and the cost of comparisons, as shares of the time without noise.
 */
function noisyRounds(seed: number, singleMs: number) {
  const random = seededRandom(seed);
  const [count, rounds] = [8, 2000];
  const costMs = (size: number) => (size === 1 ? singleMs : 4 + 4.5 * size);
  let nowMs = 0;
  const grouping = new DecodeGrouping(count, () => nowMs);
  const bestMs = Math.min(costMs(count), count * costMs(1));
  let [spentMs, comparingMs, worseRounds] = [0, 0, 0];
  const gather = () => {};
  for (let round = 0; round < rounds; round++) {
    let [ms, calls] = [0, 0];
    grouping.run(count, gather, (_, size) => {
      calls++;
      ms += costMs(size);
      nowMs += costMs(size) * Math.exp(0.2 * gaussian(random)) * (random() < 0.01 ? 3 : 1);
    });
    spentMs += ms;
    if (ms > 1.05 * bestMs) worseRounds++;
    if (calls === 2) comparingMs += ms - costMs(count);
  }
  return {
    lost: spentMs / (rounds * bestMs) - 1,
    comparing: comparingMs / spentMs,
    worse: worseRounds / rounds,
  };
}

describe("DecodeGrouping", () => {
  it("decodes together where the weights' way from memory is what counts", () => {
    const run = machine((sequences) => 100 + sequences);
    const rounds = run(8, 100);
    expect(rounds.filter((sizes) => sizes.length > 1).length).toBeLessThan(10);
    expect(Math.max(...rounds.map((sizes) => sizes.length))).toBe(2);
  });

  it("decodes one by one where a call for several is slower than calls for one each", () => {
    const run = machine((sequences) => (sequences === 1 ? 6 : 10 + 5.5 * sequences));
    expect(usualCalls(run(4, 30))).toBe(4);
    // 16 x 6 = 96 and 10 + 16 x 5.5 = 98 are too near to each other to change for.
    expect(usualCalls(run(16, 30))).toBe(1);
  });

  it("learns again when the costs change", () => {
    let single = 6;
    const run = machine((sequences) => (sequences === 1 ? single : 10 + 5 * sequences));
    expect(usualCalls(run(4, 30))).toBe(4);
    single = 12;
    expect(usualCalls(run(4, 500))).toBe(1);
  });

  it("compares soon when rounds come to take much longer than when it compared last", () => {
    let scale = 1;
    const run = machine((sequences) => scale * (sequences === 1 ? 10 : 20 + sequences));
    run(8, 2000);
    // Sure by now, it compares once in 512 rounds.
    const trialsIn = (rounds: number) => run(8, rounds).filter((sizes) => sizes.length > 1).length;
    expect(trialsIn(1024)).toBeLessThanOrEqual(3);
    scale = 2;
    expect(trialsIn(70)).toBeGreaterThanOrEqual(1);
  });

  it("is not misled by one slow call", () => {
    let calls = 0;
    const run = machine((sequences) => {
      calls++;
      const slow = calls === 2 || calls === 7 ? 10 : 1;
      return slow * (sequences === 1 ? 6 : 10 + 5.5 * sequences);
    });
    expect(usualCalls(run(4, 200))).toBe(4);
  });

  it("gives one sequence one call", () => {
    expect(machine(() => 1)(1, 3)).toEqual([[1], [1], [1]]);
  });

  // A call of one each takes this share of the call for all: from far better to far worse.
  for (const share of [0.5, 0.8, 0.9, 1, 1.07, 1.15, 2, 6]) {
    const seeds = Array.from({ length: 20 }, (_, i) => i + 1);
    it(`loses little under 20 % of noise where apart costs ${share} of together (seeds 1 to 20)`, () => {
      const runs = seeds.map((seed) => noisyRounds(seed, (40 * share) / 8));
      const meanOf = (key: "lost" | "comparing" | "worse") =>
        runs.reduce((sum, run) => sum + run[key], 0) / runs.length;
      expect(meanOf("lost")).toBeLessThan(0.015);
      expect(meanOf("comparing")).toBeLessThan(0.01);
      expect(meanOf("worse")).toBeLessThan(0.1);
      for (const { lost } of runs) expect(lost).toBeLessThan(0.05);
    });
  }
});

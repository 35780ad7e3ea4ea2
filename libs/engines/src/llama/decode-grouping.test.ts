import { describe, expect, it } from "vitest";
import { DecodeGrouping } from "./decode-grouping.ts";

/** A machine on which a call for so many sequences takes so long. */
function machine(costMs: (sequences: number) => number) {
  let nowMs = 0;
  const grouping = new DecodeGrouping(16, () => nowMs);
  /** Runs rounds; gives the sizes of the calls of each. */
  return (count: number, rounds: number): number[][] =>
    Array.from({ length: rounds }, () => {
      const sizes: number[] = [];
      grouping.run(count, (at, size) => {
        expect(at).toBe(sizes.reduce((sum, earlier) => sum + earlier, 0));
        sizes.push(size);
        nowMs += costMs(size);
      });
      expect(sizes.reduce((sum, size) => sum + size, 0)).toBe(count);
      return sizes;
    });
}

describe("DecodeGrouping", () => {
  it("decodes together where the weights' way from memory is what counts", () => {
    const run = machine((sequences) => 100 + sequences);
    const rounds = run(8, 100);
    expect(rounds.slice(-80)).toEqual(Array(80).fill([8]));
    expect(Math.max(...rounds.map((sizes) => sizes.length))).toBe(2);
  });

  it("decodes one by one where a call for several is slower than calls for one each", () => {
    const run = machine((sequences) => (sequences === 1 ? 6 : 10 + 5.5 * sequences));
    expect(run(4, 20).at(-1)).toEqual([1, 1, 1, 1]);
    // 16 x 6 = 96 and 10 + 16 x 5.5 = 98; 16 alone are known apart from 4.
    expect(run(16, 20).at(-1)).toHaveLength(16);
  });

  it("learns anew when the costs change", () => {
    let single = 6;
    const run = machine((sequences) => (sequences === 1 ? single : 10 + 5 * sequences));
    expect(run(4, 20).at(-1)).toHaveLength(4);
    single = 12;
    expect(run(4, 500).at(-1)).toEqual([4]);
  });

  it("is not misled by one slow call", () => {
    let calls = 0;
    const run = machine((sequences) => {
      calls++;
      const slow = calls === 2 || calls === 7 ? 10 : 1;
      return slow * (sequences === 1 ? 6 : 10 + 5.5 * sequences);
    });
    expect(run(4, 20).at(-1)).toHaveLength(4);
  });

  it("gives one sequence one call", () => {
    expect(machine(() => 1)(1, 3)).toEqual([[1], [1], [1]]);
  });
});

import { expect, test } from "vitest";
import { seededRandom } from "./random.ts";

test("random: a generator with `passed` numbers continues the sequence", () => {
  for (const [seed, passed] of [
    [1, 0],
    [7, 1],
    [0xffff_ffff, 100_000],
  ] as const) {
    const drawn = seededRandom(seed);
    for (let i = 0; i < passed; i++) drawn();
    const begun = seededRandom(seed, passed);
    for (let i = 0; i < 10; i++) expect(begun()).toBe(drawn());
  }
});

test("random: `passed` beyond the period and beyond 32 bits is exact", () => {
  // The period of the generator is 2 ** 32.
  expect(seededRandom(5, 9e15)()).toBe(seededRandom(5, 9e15 % 2 ** 32)());
  expect(seededRandom(5, 3 * 2 ** 32 + 2)()).toBe(seededRandom(5, 2)());
});

import { expect, test } from "vitest";
import { seededRandom } from "./random.ts";

test("a generator that begins behind so many numbers goes on as one that has drawn them", () => {
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

test("more numbers than the generator has, and more than 32 bits count, are passed at once", () => {
  // 2 ** 32 numbers take the state once around.
  expect(seededRandom(5, 9e15)()).toBe(seededRandom(5, 9e15 % 2 ** 32)());
  expect(seededRandom(5, 3 * 2 ** 32 + 2)()).toBe(seededRandom(5, 2)());
});

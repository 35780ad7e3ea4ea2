import { seededRandom } from "@heddle/base/random";
import { expect, test } from "vitest";
import { shuffle } from "./minibatches.ts";

test("shuffle: every order of three comes about as often as any other", () => {
  const random = seededRandom(3);
  const counts = new Map<string, number>();
  for (let n = 0; n < 6_000; n++) {
    const order = Int32Array.of(0, 1, 2);
    shuffle(order, random);
    counts.set(order.join(), (counts.get(order.join()) ?? 0) + 1);
  }
  expect(counts.size).toBe(6);
  for (const count of counts.values()) expect(Math.abs(count - 1_000)).toBeLessThan(150);
});

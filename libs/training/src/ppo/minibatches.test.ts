import { seededRandom } from "@heddle/base/random";
import { expect, test } from "vitest";
import { gatherExperience, shuffle } from "./minibatches.ts";

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

test("gatherExperience: takes whole rows of each tensor, in the order", () => {
  const experience = {
    observation: Float32Array.of(0, 1, 10, 11, 20, 21),
    action: Int32Array.of(5, 6, 7),
    log_probability: Float32Array.of(-1, -2, -3),
    value: Float32Array.of(0.5, 1.5, 2.5),
    advantage: Float32Array.of(1, 2, 3),
    return: Float32Array.of(4, 5, 6),
  };
  expect(gatherExperience(experience, Int32Array.of(2, 0))).toEqual({
    observation: Float32Array.of(20, 21, 0, 1),
    action: Int32Array.of(7, 5),
    log_probability: Float32Array.of(-3, -1),
    value: Float32Array.of(2.5, 0.5),
    advantage: Float32Array.of(3, 1),
    return: Float32Array.of(6, 4),
  });
});

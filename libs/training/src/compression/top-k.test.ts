import { seededRandom } from "@heddle/base/random";
import { expect, test } from "vitest";
import { addSparse, toTopK } from "./top-k.ts";

const random = seededRandom(9);
const values = Float32Array.from({ length: 1000 }, () => (random() - 0.5) * 10);

test("top-k: sends the greatest, keeps the rest, and loses nothing over time", () => {
  const residual = new Float32Array(values.length);
  const total = new Float32Array(values.length);
  for (let round = 0; round < 200; round++) {
    const sent = toTopK(round === 0 ? values : new Float32Array(values.length), residual, 10);
    expect(sent.indices.length).toBeLessThanOrEqual(10);
    addSparse(total, sent);
  }
  expect(total).toEqual(values);
  expect([...residual].every((value) => value === 0)).toBe(true);
});

test("top-k: breaks ties by the lower index", () => {
  const sent = toTopK(Float32Array.of(1, -2, 2, 1, 2), new Float32Array(5), 2);
  expect([...sent.indices]).toEqual([1, 2]);
  expect([...toTopK(Float32Array.of(1, 1, 1), new Float32Array(3), 5).indices]).toEqual([0, 1, 2]);
});

test("top-k: it sends the values of the greatest magnitude, negative ones too", () => {
  const part = Float32Array.of(3, 0.5, -4, 1, -5);
  const residual = new Float32Array(5);
  const sent = toTopK(part, residual, 2);
  expect([[...sent.indices], [...sent.values]]).toEqual([
    [2, 4],
    [-4, -5],
  ]);
  expect([...residual]).toEqual([3, 0.5, 0, 1, 0]);
});

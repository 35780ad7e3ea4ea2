import { seededRandom } from "@heddle/base/random";
import { expect, test } from "vitest";
import { rowBatches, textBatches } from "./batches.ts";

const STEPS = 3;

test("text batches: a target is the token that follows", () => {
  const text = Int32Array.from({ length: 50 }, (_, at) => at);
  const size = { batch: 2, length: 4 };
  const { tokens, targets } = textBatches(text, size, seededRandom(1))(STEPS);
  expect(tokens).toHaveLength(STEPS * 2 * 4);
  expect([...(targets ?? [])]).toEqual([...(tokens ?? [])].map((token) => token + 1));
});

test("row batches: several workers see what one worker with all their rows sees", () => {
  const numbers = Float32Array.from({ length: 40 }, (_, at) => at);
  const rows = { features: numbers, target: numbers, count: 40 };
  const drawn = (batch: number, share?: { readonly rank: number; readonly workers: number }) => {
    const source = rowBatches(rows, batch, seededRandom(7), share);
    return [...(source(STEPS)["features"] ?? [])];
  };
  const all = drawn(6);
  const parts = [0, 1, 2].map((rank) => drawn(2, { rank, workers: 3 }));
  for (let step = 0; step < STEPS; step++) {
    const together = parts.flatMap((part) => part.slice(2 * step, 2 * step + 2));
    expect(together).toEqual(all.slice(6 * step, 6 * step + 6));
  }
});

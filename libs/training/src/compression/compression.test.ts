import { seededRandom } from "@heddle/base/random";
import { expect, test } from "vitest";
import { fromBf16, toBf16 } from "./bf16.ts";
import { fromInt8, INT8_BLOCK, toInt8 } from "./int8.ts";
import { addSparse, toTopK } from "./top-k.ts";

const random = seededRandom(9);
const values = Float32Array.from({ length: 1000 }, () => (random() - 0.5) * 10);

test("bf16 keeps eight bits of precision, and what it can hold exactly", () => {
  const back = fromBf16(toBf16(values));
  for (const [i, value] of values.entries()) {
    expect(Math.abs((back[i] ?? 0) - value)).toBeLessThanOrEqual(Math.abs(value) * 2 ** -8);
  }
  const exact = Float32Array.of(0, -0, 1, -2.5, Number.POSITIVE_INFINITY, 2 ** -120);
  expect(fromBf16(toBf16(exact))).toEqual(exact);
  expect(fromBf16(toBf16(Float32Array.of(Number.NaN)))[0]).toBeNaN();
});

test("bf16 rounds a tie to the even neighbour", () => {
  const tie = (bits: number) => new Float32Array(Uint32Array.of(bits).buffer);
  expect(toBf16(tie(0x3f808000))[0]).toBe(0x3f80);
  expect(toBf16(tie(0x3f818000))[0]).toBe(0x3f82);
});

test("int8 is within half a step of each block's own scale, and keeps zeros", () => {
  const blocks = toInt8(values);
  expect(blocks.scales.length).toBe(4);
  const back = fromInt8(blocks);
  for (const [i, value] of values.entries()) {
    const scale = blocks.scales[Math.floor(i / INT8_BLOCK)] ?? 0;
    expect(Math.abs((back[i] ?? 0) - value)).toBeLessThanOrEqual(scale * 0.5001);
  }
  expect([...fromInt8(toInt8(new Float32Array(300)))].every((value) => value === 0)).toBe(true);
});

test("top-k sends the greatest, keeps the rest, and loses nothing over time", () => {
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

test("top-k breaks ties by the lower index", () => {
  const sent = toTopK(Float32Array.of(1, -2, 2, 1, 2), new Float32Array(5), 2);
  expect([...sent.indices]).toEqual([1, 2]);
  expect([...toTopK(Float32Array.of(1, 1, 1), new Float32Array(3), 5).indices]).toEqual([0, 1, 2]);
});

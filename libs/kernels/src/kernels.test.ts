// holds: ps-kernels

import { expect, test } from "vitest";
import { KERNEL_BLOCK, kernelMemory, loadKernels } from "./kernels.ts";

const COUNT = 3 * KERNEL_BLOCK;
const memory = kernelMemory(64 * COUNT);
const kernels = loadKernels(memory);
const bytes = COUNT * 4;

/** Slab number i as numbers, filled by a function of the position. */
function slab(i: number, fill: (at: number) => number): Float32Array {
  const values = new Float32Array(memory.buffer, i * bytes, COUNT);
  for (let at = 0; at < COUNT; at++) values[at] = fill(at);
  return values;
}

const wave = (at: number) => Math.sin(at * 1.7) * 3;
const ramp = (at: number) => at / 100 - 2;

function expectAll(values: Float32Array, expected: (at: number) => number, digits = 5): void {
  for (const [at, value] of values.entries()) expect(value).toBeCloseTo(expected(at), digits);
}

test("add and addScaled: add each element", () => {
  const acc = slab(0, ramp);
  slab(1, wave);
  kernels.add(0, bytes, COUNT);
  expectAll(acc, (at) => ramp(at) + wave(at));
  expect(kernels.addScaled(0, bytes, COUNT, 2.5, 0)).toBe(0);
  expectAll(acc, (at) => ramp(at) + 3.5 * wave(at));
});

test("first part of a sum: replaces the old value, even NaN", () => {
  const acc = slab(0, () => Number.NaN);
  slab(1, wave);
  expect(kernels.addScaled(0, bytes, COUNT, -2, 1)).toBe(0);
  expectAll(acc, (at) => -2 * wave(at));
});

test("addScaled: detects a NaN sum in every lane", () => {
  for (let at = 0; at < 16; at++) {
    for (const [value, first] of [
      [Number.NaN, 0],
      [Infinity, 1],
      [-3e38, 0],
    ] as const) {
      slab(0, ramp);
      slab(1, wave)[COUNT - 16 + at] = value;
      expect(kernels.addScaled(0, bytes, COUNT, 2, first)).toBe(1);
    }
  }
});

test("bf16: a part is accurate to a 256th", () => {
  slab(1, wave);
  kernels.toBf16(2 * bytes, bytes, COUNT);
  const acc = slab(0, () => 1);
  kernels.addBf16(0, 2 * bytes, COUNT, 2);
  for (const [at, value] of acc.entries()) {
    expect(Math.abs(value - (1 + 2 * wave(at)))).toBeLessThanOrEqual(
      Math.abs(2 * wave(at)) / 256 + 1e-6,
    );
  }
});

test("bf16: rounds a tie to the even neighbour, and exact values exactly", () => {
  const bits = [0x3f808000, 0x3f818000, 0x3f800000, 0xc0200000, 0x7f800000, 0x80000000];
  new Uint32Array(memory.buffer, bytes, COUNT).fill(0).set(bits);
  kernels.toBf16(2 * bytes, bytes, COUNT);
  const halves = new Uint16Array(memory.buffer, 2 * bytes, bits.length);
  expect([...halves]).toEqual([0x3f80, 0x3f82, 0x3f80, 0xc020, 0x7f80, 0x8000]);
});

test("int8: a part is accurate to half a step of its block's scale", () => {
  slab(1, (at) => wave(at) * (1 + Math.floor(at / KERNEL_BLOCK) * 10));
  const scales = new Float32Array(memory.buffer, 3 * bytes, 3);
  kernels.toInt8(2 * bytes, 3 * bytes, bytes, COUNT);
  const integers = new Int8Array(memory.buffer, 2 * bytes, COUNT);
  expect(Math.max(...integers)).toBe(127);
  const acc = slab(0, () => 0);
  kernels.addInt8(0, 2 * bytes, 3 * bytes, COUNT, 0.5);
  for (const [at, value] of acc.entries()) {
    const exact = wave(at) * (1 + Math.floor(at / KERNEL_BLOCK) * 10);
    const step = scales[Math.floor(at / KERNEL_BLOCK)] ?? 0;
    expect(Math.abs(value - exact / 2)).toBeLessThanOrEqual(step * 0.2501 + 1e-6);
  }
  slab(1, () => 0);
  kernels.toInt8(2 * bytes, 3 * bytes, bytes, COUNT);
  expect([...scales]).toEqual([0, 0, 0]);
});

test("sums of squares: agree with float64; non-finite values are found anywhere", () => {
  const values = slab(0, wave);
  const exact = values.reduce((sum, value) => sum + value * value, 0);
  expect(kernels.sumSquares(0, COUNT) / exact).toBeCloseTo(1, 6);
  expect(kernels.notFinite(0, COUNT)).toBe(0);
  for (const [at, bad] of [
    [0, Number.NaN],
    [COUNT - 1, Number.POSITIVE_INFINITY],
    [301, -1 / 0],
  ] as const) {
    slab(0, wave)[at] = bad;
    expect(kernels.notFinite(0, COUNT)).toBe(1);
  }
});

test("sgd and momentum: follow their formulas, twice", () => {
  const p = slab(0, ramp);
  slab(1, wave);
  kernels.sgd(0, bytes, COUNT, 0.1, 2);
  expectAll(p, (at) => ramp(at) - 0.2 * wave(at));
  for (const nesterov of [0, 1]) {
    const parameter = slab(0, ramp);
    const velocity = slab(2, () => 0);
    for (let update = 0; update < 2; update++) {
      kernels.momentum(0, 2 * bytes, bytes, COUNT, 0.1, 0.9, nesterov, 0.5);
    }
    const g = (at: number) => wave(at) / 2;
    expectAll(velocity, (at) => 1.9 * g(at));
    const first = nesterov ? 1.9 : 1;
    const second = nesterov ? 1 + 0.9 * 1.9 : 1.9;
    expectAll(parameter, (at) => ramp(at) - 0.1 * (first + second) * g(at));
  }
});

test("adam: follows its formula over two updates, with decoupled decay", () => {
  const p = slab(0, ramp);
  const [first, second] = [slab(2, () => 0), slab(3, () => 0)];
  slab(1, wave);
  const exact = Array.from({ length: COUNT }, (_, at) => ({ p: ramp(at), m: 0, v: 0 }));
  for (let step = 1; step <= 2; step++) {
    const rate = 0.01 / (1 - 0.9 ** step);
    const spread = Math.sqrt(1 - 0.999 ** step);
    const scalars = [rate, spread, 0.9, 0.999, 1e-8, 0.001, 1] as const;
    kernels.adam(0, 2 * bytes, 3 * bytes, bytes, COUNT, ...scalars);
    for (const [at, one] of exact.entries()) {
      one.m = 0.9 * one.m + 0.1 * wave(at);
      one.v = 0.999 * one.v + 0.001 * wave(at) ** 2;
      one.p = one.p * 0.999 - (rate * one.m) / (Math.sqrt(one.v) / spread + 1e-8);
    }
  }
  expectAll(first, (at) => exact[at]?.m ?? 0);
  expectAll(second, (at) => exact[at]?.v ?? 0);
  // Where the gradient is tiny, the quotient of two small numbers is inaccurate.
  for (const [at, value] of p.entries()) {
    if (Math.abs(wave(at)) > 1e-3) expect(value).toBeCloseTo(exact[at]?.p ?? 0, 4);
  }
});

test("memory: more than 4 GiB is refused", () => {
  expect(() => kernelMemory(2 ** 33)).toThrow(/4 GiB/);
});

import { kernelMemory, loadKernels } from "@heddle/kernels/kernels";
import { pattern } from "@heddle/training/testing/pattern";
import { expect, test } from "vitest";
import type { Compression } from "../shards/compression.ts";
import { PartAdder, STAGING_BYTES } from "./part-adder.ts";
import { PartEncoder } from "./part-encoder.ts";

/** More than a slice of each kind, and not a multiple of one. */
const ELEMENTS = 128 * 1024 + 512;

function accumulator(elements = ELEMENTS) {
  const memory = kernelMemory(elements * 4 + STAGING_BYTES);
  const acc = { memory, kernels: loadKernels(memory), sums: 0, staging: elements * 4, elements };
  return { acc, sums: new Float32Array(memory.buffer, 0, elements) };
}

function encodedPart(compression: Compression, values: Float32Array): Buffer {
  const segments = [{ parameter: "p", begin: 0, end: values.length, offset: 0 }];
  const layout = { segments, elements: values.length };
  const encoder = new PartEncoder(layout, { compression, topkFraction: 1 });
  return Buffer.concat(encoder.encode({ p: values }).pieces.map((piece) => Buffer.from(piece)));
}

/** Passes the bytes to the adder as a connection does, at most `most` at a time. */
function feed(adder: PartAdder, bytes: Uint8Array, most = Number.POSITIVE_INFINITY): void {
  adder.begin({ version: 0, bytes: bytes.length });
  for (let at = 0; at < bytes.length; ) {
    const space = adder.space();
    const count = Math.min(space.length, most, bytes.length - at);
    space.set(bytes.subarray(at, at + count));
    adder.filled(count);
    at += count;
  }
  adder.end();
}

const values = (seed: number) => Float32Array.from(pattern(seed, ELEMENTS));

test.each<[Compression, number]>([
  ["none", 1e-6],
  ["bf16", 1e-2],
  ["int8", 1e-2],
  ["topk", 1e-6],
])("adder: the first of an update replaces, and each counts by its weight: %s", (kind, error) => {
  const { acc, sums } = accumulator();
  sums.fill(99);
  const [first, second] = [values(1), values(2)];
  feed(new PartAdder(acc, kind, 0.25, true), encodedPart(kind, first));
  feed(new PartAdder(acc, kind, 0.75, false), encodedPart(kind, second), 100_000);
  for (const at of [0, 1, 255, 65_535, 65_536, 131_071, 131_072, ELEMENTS - 1]) {
    const expected = 0.25 * (first[at] ?? 0) + 0.75 * (second[at] ?? 0);
    expect(Math.abs((sums[at] ?? 0) - expected), `element ${at}`).toBeLessThan(error);
  }
});

test("adder: copied bytes give the same sums", () => {
  const bytes = encodedPart("none", values(3));
  const { acc, sums } = accumulator();
  const adder = new PartAdder(acc, "none", 1, true);
  adder.begin({ version: 0, bytes: bytes.length });
  for (let at = 0; at < bytes.length; at += 99_999) adder.copy(bytes.subarray(at, at + 99_999));
  adder.end();
  expect(sums).toEqual(values(3));
});

test("adder: another length is refused before any byte, or at the end", () => {
  const { acc } = accumulator(512);
  const begun = (kind: Compression, bytes: number) => {
    const adder = new PartAdder(acc, kind, 1, true);
    adder.begin({ version: 0, bytes });
    return adder;
  };
  expect(() => begun("none", 2044)).toThrow(/512 elements as none are 2048/);
  expect(() => begun("topk", 12)).toThrow(/at most 4096/);
  expect(() => begun("topk", 4104)).toThrow(/at most 4096/);
  expect(() => begun("topk", 4096)).not.toThrow();
  const short = begun("none", 2048);
  short.copy(new Uint8Array(2047));
  expect(() => short.end()).toThrow(/1 bytes too early/);
  const long = begun("none", 2048);
  expect(() => long.copy(new Uint8Array(2049))).toThrow(/a part of -1 bytes was refused/);
});

test("adder: `touched` shows whether the sums may contain some of the part", () => {
  const { acc } = accumulator(512);
  const adder = new PartAdder(acc, "none", 1, true);
  adder.begin({ version: 0, bytes: 2048 });
  adder.filled(2047);
  expect(adder.touched).toBe(false);
  adder.filled(1);
  expect(adder.touched).toBe(true);
});

test.each(["none", "bf16"] as const)("adder: a value that is not finite is refused: %s", (kind) => {
  const { acc } = accumulator(512);
  const bytes = encodedPart(kind, new Float32Array(512));
  // The exponent of an infinity, in the highest bits of the second element.
  bytes.writeUInt16LE(0x7f80, kind === "none" ? 6 : 2);
  const adder = new PartAdder(acc, kind, 1, true);
  expect(() => feed(adder, bytes)).toThrow(/elements 0 to 512 of the shard hold NaN/);
});

/** Pairs of index and value. */
function pairs(...list: readonly (readonly [number, number])[]): Uint8Array {
  const bytes = Buffer.alloc(list.length * 8);
  for (const [i, [index, value]] of list.entries()) {
    bytes.writeUInt32LE(index, i * 8);
    bytes.writeFloatLE(value, i * 8 + 4);
  }
  return bytes;
}

test("adder: sparse indices ascend within the shard, and their values are finite", () => {
  const add = (...list: readonly (readonly [number, number])[]) => {
    const { acc, sums } = accumulator(512);
    feed(new PartAdder(acc, "topk", 2, true), pairs(...list));
    return sums;
  };
  const sums = add([0, 1], [511, 3]);
  expect([sums[0], sums[1], sums[511]]).toEqual([2, 0, 6]);
  expect(() => add([512, 1])).toThrow(/index 512 out of order/);
  expect(() => add([3, 1], [3, 1])).toThrow(/index 3 out of order/);
  expect(() => add([3, 1], [2, 1])).toThrow(/index 2 out of order/);
  expect(() => add([5, Number.NaN])).toThrow(/elements 5 to 6/);
});

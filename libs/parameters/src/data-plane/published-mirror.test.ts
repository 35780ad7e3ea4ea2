import { kernelMemory, loadKernels } from "@heddle/kernels/kernels";
import { expect, test } from "vitest";
import { partBytes } from "../shards/compression.ts";
import { encodeInt8 } from "./int8-slices.ts";
import { PublishedMirror } from "./published-mirror.ts";

const ELEMENTS = 512;
const layout = {
  segments: [
    { parameter: "a", begin: 0, end: 3, offset: 0 },
    { parameter: "b", begin: 1, end: 3, offset: 256 },
  ],
  elements: ELEMENTS,
};

/** A slab with the values of `a` and of the second and third elements of `b`. */
function slabOf(a: readonly number[], b: readonly number[]): Float32Array {
  const slab = new Float32Array(ELEMENTS);
  slab.set(a, 0);
  slab.set(b, 256);
  return slab;
}

const whole = (slab: Float32Array) => new Uint8Array(slab.buffer);

function changes(slab: Float32Array): Uint8Array {
  const bytes = partBytes("int8", ELEMENTS);
  const memory = kernelMemory(ELEMENTS * 4 + bytes);
  new Float32Array(memory.buffer, 0, ELEMENTS).set(slab);
  encodeInt8(loadKernels(memory), ELEMENTS * 4, 0, ELEMENTS);
  return new Uint8Array(memory.buffer, ELEMENTS * 4, bytes).slice();
}

function take(mirror: PublishedMirror, version: number, bytes: Uint8Array, isCopied: boolean) {
  const sink = mirror.sink();
  sink.begin({ version, bytes: bytes.length });
  for (let at = 0; at < bytes.length; ) {
    const count = Math.min(100, bytes.length - at);
    const piece = bytes.subarray(at, at + count);
    if (isCopied) sink.copy(piece);
    else {
      sink.space().set(piece);
      sink.filled(count);
    }
    at += count;
  }
  sink.end();
}

function held(mirror: PublishedMirror) {
  const into = { a: new Float32Array(3), b: new Float32Array(4) };
  mirror.copyTo(into);
  return [[...into.a], [...into.b]];
}

test.each([true, false])("mirror: the whole, then changes, then nothing: copied %s", (isCopied) => {
  const mirror = new PublishedMirror(layout);
  expect(mirror.version).toBeUndefined();
  take(mirror, 4, whole(slabOf([1, 2, 3], [5, 6])), isCopied);
  expect([mirror.version, held(mirror)]).toEqual([
    4,
    [
      [1, 2, 3],
      [0, 5, 6, 0],
    ],
  ]);
  take(mirror, 5, changes(slabOf([127, 0, -127], [127, 0])), isCopied);
  expect([mirror.version, held(mirror)]).toEqual([
    5,
    [
      [128, 2, -124],
      [0, 132, 6, 0],
    ],
  ]);
  take(mirror, 5, new Uint8Array(0), isCopied);
  expect([mirror.version, held(mirror)]).toEqual([
    5,
    [
      [128, 2, -124],
      [0, 132, 6, 0],
    ],
  ]);
  take(mirror, 9, whole(slabOf([7, 7, 7], [8, 8])), isCopied);
  expect([mirror.version, held(mirror)]).toEqual([
    9,
    [
      [7, 7, 7],
      [0, 8, 8, 0],
    ],
  ]);
});

test("mirror: an empty one takes no changes, and another length is refused", () => {
  const mirror = new PublishedMirror(layout);
  const begin = (bytes: number) => () => mirror.sink().begin({ version: 1, bytes });
  expect(begin(partBytes("int8", ELEMENTS))).toThrow(/this worker's plan has 2048/);
  expect(begin(0)).toThrow(/answered with 0 bytes/);
  expect(begin(2052)).toThrow(/answered with 2052 bytes/);
  take(mirror, 1, whole(slabOf([], [])), true);
  expect(begin(partBytes("int8", ELEMENTS) + 4)).toThrow(/the same model/);
});

test("mirror: a whole that breaks off leaves it empty", () => {
  const mirror = new PublishedMirror(layout);
  take(mirror, 1, whole(slabOf([1], [])), true);
  const sink = mirror.sink();
  sink.begin({ version: 2, bytes: 2048 });
  sink.copy(new Uint8Array(100));
  expect(() => sink.end()).toThrow(/answered with 100 bytes/);
  expect(mirror.version).toBeUndefined();
  expect(() => sink.copy(new Uint8Array(1949))).toThrow(/answered with 2049 bytes/);
});

import { expect, test } from "vitest";
import { SlabScatter } from "../data-plane/slab-scatter.ts";
import {
  type Compression,
  compressedBytes,
  parseCompression,
  parsePullCompression,
  partBytes,
  scaleBytes,
} from "./compression.ts";
import { checkPlan, checkTensors, planDigest } from "./job-plan.ts";
import { shardLayouts, slabPieces } from "./shard-layout.ts";
import type { ShardSetSpec } from "./shard-spec.ts";

const parameters = [
  { name: "a", shape: [3], type: "f32" as const },
  { name: "b", shape: [2, 2], type: "f32" as const },
];
const spec = { parameters, servers: ["s"], compression: "none" } as unknown as ShardSetSpec;
const tensors = { a: Float32Array.of(1, 2, 3), b: Float32Array.of(4, 5, 6, 7) };
const [layout] = shardLayouts(parameters, 1);
if (!layout) throw new Error("there is no shard");

/**
 * The slab of the tensors, the larger first: each begins at a block of 256, and the rest is zeros.
 */
const slab = new Float32Array(512);
slab.set(tensors.b, 0);
slab.set(tensors.a, 256);

const empty = () => ({ a: new Float32Array(3), b: new Float32Array(4) });

test("slab: tensors lie at their offsets, with zeros between and behind", () => {
  expect(layout.elements).toBe(512);
  const bytes = Buffer.concat([...slabPieces(layout, tensors)]);
  expect([...new Float32Array(Uint8Array.from(bytes).buffer)]).toEqual([...slab]);
});

test.each([1, 3, 5, 4096])("slab: %i bytes at a time return into the tensors", (most) => {
  const bytes = new Uint8Array(slab.buffer);
  for (const isCopied of [true, false]) {
    const into = empty();
    const sink = new SlabScatter(layout, into);
    sink.begin({ version: 1, bytes: bytes.length });
    for (let at = 0; at < bytes.length; ) {
      const count = Math.min(most, isCopied ? most : sink.space().length, bytes.length - at);
      if (isCopied) sink.copy(bytes.subarray(at, at + count));
      else {
        sink.space().set(bytes.subarray(at, at + count));
        sink.filled(count);
      }
      at += count;
    }
    sink.end();
    expect(into).toEqual(tensors);
  }
});

test("slab: another length is refused before a byte, or at the end", () => {
  const sink = () => new SlabScatter(layout, empty());
  expect(() => sink().begin({ version: 1, bytes: 2044 })).toThrow(/plan says 2048/);
  const short = sink();
  short.copy(new Uint8Array(2047));
  expect(() => short.end()).toThrow(/2047 bytes/);
  const long = sink();
  long.copy(new Uint8Array(2048));
  expect(() => long.copy(new Uint8Array(1))).toThrow(/2049 bytes/);
});

test("slab: each shard has its own segments, by their offsets", () => {
  const two = shardLayouts(parameters, 2);
  expect(two.map(({ elements }) => elements)).toEqual([256, 256]);
  const names = two.flatMap(({ segments }) => segments.map(({ parameter }) => parameter));
  expect(names.sort()).toEqual(["a", "b"]);
});

test("compression: known names are accepted, none is the default, others are refused", () => {
  const names = ["none", "bf16", "int8", "topk"];
  expect(names.map(parseCompression)).toEqual(names);
  expect([parseCompression(""), parsePullCompression("")]).toEqual(["none", "none"]);
  expect(["none", "int8"].map(parsePullCompression)).toEqual(["none", "int8"]);
  expect(() => parseCompression("zip")).toThrow(/use none, bf16, int8 or topk/);
  expect(() => parsePullCompression("bf16")).toThrow(/use none or int8/);
});

test("compression: scales are padded to 16 bytes, one for each block of 256", () => {
  expect([256, 1024, 1280, 0].map(scaleBytes)).toEqual([16, 16, 32, 0]);
});

test.each([
  ["none", 1024],
  ["bf16", 512],
  ["int8", 272],
] as const)("compression: bytes of a slice of 256 elements as %s", (kind, bytes) => {
  expect(compressedBytes(kind, 256)).toBe(bytes);
});

test.each<[Compression, number]>([
  ["none", 4 * 262_400],
  ["bf16", 2 * 262_400],
  ["int8", 262_400 + 4 * 1025 + 12],
  ["topk", 8 * 262_400],
])("compression: bytes of a part of two slices and a block as %s", (kind, bytes) => {
  expect(partBytes(kind, 2 * 128 * 1024 + 256)).toBe(bytes);
});

test("plan: its digest depends on tensors, cuts and compression only", () => {
  const changes: Partial<ShardSetSpec>[] = [
    {},
    { parameters: [...parameters].reverse() },
    { parameters: [{ name: "a", shape: [4], type: "f32" }] },
    { servers: ["s", "t"] },
    { servers: ["s", "t"], fragments: 2 },
    { compression: "int8" },
  ];
  const digests = changes.map((change) => planDigest({ ...spec, ...change }));
  expect(new Set(digests).size).toBe(changes.length);
  expect(digests[0]).toMatch(/^[0-9a-f]{64}$/);
  expect(planDigest({ ...spec, servers: ["u"], fragments: 1, workers: 9 })).toBe(digests[0]);
});

test("plan: another digest is refused with the job's first tensors", () => {
  const many = Array.from({ length: 5 }, (_, i) => ({
    name: `t${i}`,
    shape: [3],
    type: "f32" as const,
  }));
  const job = { ...spec, parameters: many } as ShardSetSpec;
  const digest = planDigest(job);
  expect(() => checkPlan(job, digest, digest)).not.toThrow();
  expect(() => checkPlan(job, digest, "x")).toThrow(/t0 \[3\], .*t3 \[3\], \.\.\. in 1 shards/);
  expect(() => checkPlan({ ...job, parameters: many.slice(1) }, digest, "x")).toThrow(
    /t4 \[3\] in/,
  );
});

test("plan: a tensor that is missing or has another length is refused", () => {
  expect(() => checkTensors(spec, tensors)).not.toThrow();
  expect(() => checkTensors(spec, { a: tensors.a })).toThrow(/tensor b has no elements .*\[2,2\]/);
  expect(() => checkTensors(spec, { ...tensors, a: tensors.b })).toThrow(/tensor a has 4 elements/);
});

// holds: train-weave

import { expect, test } from "vitest";
import { fragmentRanges } from "./fragments.ts";
import { PARTITION_ELEMENTS, planShards } from "./sharding-plan.ts";

const spec = (name: string, ...shape: number[]) => ({ name, shape, type: "f32" as const });
const MODEL = [spec("a", 5000, 1000), spec("b", 1000), spec("c", 3, 7), spec("d", 2000, 1000)];

test("shards: each element is held once, in pieces of at most 4 MiB", () => {
  const { partitions } = planShards(MODEL, 3);
  for (const { name, shape } of MODEL) {
    const pieces = partitions.filter(({ parameter }) => parameter === name);
    let at = 0;
    for (const { begin, end } of pieces) {
      expect(begin).toBe(at);
      expect(end - begin).toBeLessThanOrEqual(PARTITION_ELEMENTS);
      at = end;
    }
    expect(at).toBe(shape.reduce((product, size) => product * size, 1));
  }
});

test("shards: pieces do not overlap, begin at int8 blocks, and are balanced", () => {
  const { partitions, slabElements } = planShards(MODEL, 3);
  for (const [shard, total] of slabElements.entries()) {
    const own = partitions.filter((piece) => piece.shard === shard);
    let at = 0;
    for (const { offset, begin, end } of own.toSorted((a, b) => a.offset - b.offset)) {
      expect(offset % 256).toBe(0);
      expect(offset).toBeGreaterThanOrEqual(at);
      at = offset + end - begin;
    }
    expect(at).toBeLessThanOrEqual(total);
  }
  expect(Math.max(...slabElements) - Math.min(...slabElements)).toBeLessThan(PARTITION_ELEMENTS);
});

test("shards: fragments have their own, balanced to an element, all elements once", () => {
  const elements = (fragments: number) =>
    fragmentRanges(MODEL, fragments).map((ranges) =>
      ranges.reduce((sum, { begin, end }) => sum + end - begin, 0),
    );
  const total = elements(1)[0] ?? 0;
  for (const fragments of [2, 3, 7]) {
    const sizes = elements(fragments);
    expect(sizes.reduce((sum, size) => sum + size, 0)).toBe(total);
    expect(Math.max(...sizes) - Math.min(...sizes)).toBeLessThanOrEqual(1);
    const { partitions, slabElements } = planShards(MODEL, 2 * fragments, fragments);
    expect(slabElements).toHaveLength(2 * fragments);
    for (const [fragment, ranges] of fragmentRanges(MODEL, fragments).entries()) {
      const own = partitions.filter(({ shard }) => shard >> 1 === fragment);
      const held = own.reduce((sum, { begin, end }) => sum + end - begin, 0);
      expect(held).toBe(ranges.reduce((sum, { begin, end }) => sum + end - begin, 0));
    }
    for (const { name, shape } of MODEL) {
      const pieces = partitions.filter(({ parameter }) => parameter === name);
      expect(pieces[0]?.begin).toBe(0);
      for (const [i, { begin }] of pieces.entries()) {
        if (i > 0) expect(begin).toBe(pieces[i - 1]?.end);
      }
      expect(pieces.at(-1)?.end).toBe(shape.reduce((product, size) => product * size, 1));
    }
  }
  expect(() => planShards(MODEL, 3, 2)).toThrow(/3 shards cannot be shared by 2 fragments/);
  expect(() => fragmentRanges(MODEL, 0)).toThrow(/at least one fragment/);
});

test("shards: zero servers are refused", () => {
  expect(() => planShards(MODEL, 0)).toThrow(/at least one parameter server/);
});

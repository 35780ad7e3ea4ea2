import { expect, test } from "vitest";
import { PARTITION_ELEMENTS, planShards } from "./sharding-plan.ts";

const spec = (name: string, ...shape: number[]) => ({ name, shape, type: "f32" as const });
const MODEL = [spec("a", 5000, 1000), spec("b", 1000), spec("c", 3, 7), spec("d", 2000, 1000)];

test("each element of each parameter is held once, in pieces of at most 4 MiB", () => {
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

test("pieces do not overlap on a server, begin at int8 blocks, and servers are balanced", () => {
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

test("no server is refused", () => {
  expect(() => planShards(MODEL, 0)).toThrow(/at least one parameter server/);
});

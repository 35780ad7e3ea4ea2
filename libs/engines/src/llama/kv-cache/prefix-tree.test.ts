// holds: engine-batching

import { seededRandom } from "@heddle/base/random";
import { describe, expect, it } from "vitest";
import { UnifiedCells } from "../testing/test-unified-cells.ts";
import { type PrefixLease, PrefixTree } from "./prefix-tree.ts";

const TREE_SEQUENCES = Array.from({ length: 12 }, (_, i) => 100 + i);

/** Runs a request through the tree the way the engine does; gives its length in cache. */
function run(
  tree: PrefixTree,
  cells: UnifiedCells,
  tokens: Int32Array,
  sequence: number,
): PrefixLease {
  const lease = tree.attach(tokens, tokens.length - 1, sequence);
  for (let i = lease.length; i < tokens.length; i++) {
    cells.compute(sequence, i, tokens[i] as number);
  }
  return tree.insert(tokens, tokens.length, sequence, lease);
}

describe("PrefixTree", () => {
  it("shares the longest cached prefix", () => {
    const cells = new UnifiedCells();
    const tree = new PrefixTree(cells, TREE_SEQUENCES);
    tree.release(run(tree, cells, Int32Array.of(1, 2, 3, 4), 0));
    cells.remove(0, 0, -1);
    expect(tree.matchLength(Int32Array.of(1, 2, 3, 9), 4)).toBe(3);
    expect(tree.matchLength(Int32Array.of(1, 2, 3, 4), 3)).toBe(3);
    expect(tree.matchLength(Int32Array.of(2, 2), 2)).toBe(0);
    const lease = tree.attach(Int32Array.of(1, 2, 9), 2, 1);
    expect(lease.length).toBe(2);
    expect(cells.tokensOf(1)).toEqual([1, 2]);
  });

  it("never evicts a leased prefix, and evicts the oldest first", () => {
    const cells = new UnifiedCells();
    const tree = new PrefixTree(cells, TREE_SEQUENCES);
    const kept = run(tree, cells, Int32Array.of(1, 2, 3), 0);
    tree.release(run(tree, cells, Int32Array.of(5, 6), 1));
    tree.release(run(tree, cells, Int32Array.of(7, 8), 2));
    for (const sequence of [0, 1, 2]) cells.remove(sequence, 0, -1);
    expect(tree.evict(1)).toBe(2);
    expect(tree.matchLength(Int32Array.of(7, 8), 2)).toBe(2);
    expect(tree.matchLength(Int32Array.of(5, 6), 2)).toBe(0);
    expect(tree.evict(100)).toBe(2);
    expect(tree.tokenCount).toBe(3);
    tree.release(kept);
    expect(tree.evict(100)).toBe(3);
    expect(cells.used).toBe(0);
  });

  for (const seed of [1, 2, 3, 4, 5]) {
    it(`agrees with a naive model over random requests (seed ${seed})`, () => {
      checkAgainstModel(seed);
    });
  }
});

/** Random requests over a small alphabet, up to four at a time, with random evictions. */
function checkAgainstModel(seed: number): void {
  const random = seededRandom(seed);
  const below = (limit: number): number => Math.floor(random() * limit);
  const cells = new UnifiedCells();
  const tree = new PrefixTree(cells, TREE_SEQUENCES);
  const live = new Map<number, { tokens: Int32Array; lease: PrefixLease }>();
  const seen: Int32Array[] = [];
  for (let step = 0; step < 400; step++) {
    const slot = below(4);
    const running = live.get(slot);
    if (running !== undefined) {
      expect(cells.tokensOf(slot)).toEqual([...running.tokens]);
      tree.release(running.lease);
      cells.remove(slot, 0, -1);
      live.delete(slot);
    } else {
      const tokens = Int32Array.from({ length: 1 + below(12) }, () => below(3));
      const longest = longestCommon(seen, tokens);
      expect(tree.matchLength(tokens, tokens.length)).toBeLessThanOrEqual(longest);
      const lease = run(tree, cells, tokens, slot);
      seen.push(tokens);
      live.set(slot, { tokens, lease });
      expect(cells.tokensOf(slot)).toEqual([...tokens]);
      expect(tree.matchLength(tokens, tokens.length)).toBeGreaterThanOrEqual(lease.length);
    }
    if (random() < 0.1) tree.evict(below(20));
    const privates = [...live.values()].reduce((n, r) => n + r.tokens.length - r.lease.length, 0);
    expect(cells.used).toBe(tree.tokenCount + privates);
    expect(tree.evictableTokens()).toBeLessThanOrEqual(tree.tokenCount);
  }
  for (const [slot, { lease }] of live) {
    tree.release(lease);
    cells.remove(slot, 0, -1);
  }
  expect(tree.evictableTokens()).toBe(tree.tokenCount);
  tree.evict(Number.POSITIVE_INFINITY);
  expect(tree.tokenCount).toBe(0);
  expect(cells.used).toBe(0);
}

function longestCommon(seen: readonly Int32Array[], tokens: Int32Array): number {
  let longest = 0;
  for (const other of seen) {
    let length = 0;
    while (length < tokens.length && other[length] === tokens[length]) length++;
    longest = Math.max(longest, length);
  }
  return longest;
}

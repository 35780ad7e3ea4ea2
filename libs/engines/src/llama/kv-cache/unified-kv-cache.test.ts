// holds: engine-batching

import { describe, expect, it } from "vitest";
import { checkKvCache, testSequence } from "../testing/test-kv-cache.ts";
import { UnifiedCells } from "../testing/test-unified-cells.ts";
import { UnifiedKvCache } from "./unified-kv-cache.ts";

const LIMITS = { kvTokens: 400, maxSequences: 4, retainedTokens: 200 };

describe("UnifiedKvCache", () => {
  for (const seed of [1, 2, 3, 4, 5]) {
    it(`keeps true books over random requests (seed ${seed})`, () => {
      const cells = new UnifiedCells();
      checkKvCache(new UnifiedKvCache(cells, LIMITS, true), cells, seed);
    });
  }

  it("shares nothing where the model's state cannot be cut", () => {
    const cells = new UnifiedCells();
    const cache = new UnifiedKvCache(cells, LIMITS, false);
    checkKvCache(cache, cells, 1);
    const first = testSequence(Int32Array.of(1, 2, 3, 4));
    cache.admit(first, 0);
    for (const [position, token] of [1, 2, 3, 4].entries()) cells.compute(0, position, token);
    first.computed = 4;
    cache.share(first, 4);
    cache.release(first);
    expect(cache.usedTokens).toBe(0);
    expect(cache.cachedLength(testSequence(Int32Array.of(1, 2, 3, 4)))).toBe(0);
  });
});

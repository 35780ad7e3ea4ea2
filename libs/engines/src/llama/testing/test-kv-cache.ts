import { seededRandom } from "@heddle/base/random";
import { expect } from "vitest";
import type { KvCache } from "../kv-cache/kv-cache.ts";
import { type Sequence, type TextSequence } from "../kv-cache/sequence.ts";
import { TokenList } from "../kv-cache/token-list.ts";

/** For tests: the cells of a native cache, the truth that its books are checked against. */
export interface NativeCells {
  compute(sequence: number, position: number, token: number): void;
  /** The tokens of a sequence by position. Fails where a position is missing or there twice. */
  tokensOf(sequence: number): number[];
  /** Cells in use. */
  readonly used: number;
}

/** For tests: what every layout of the cache promises, over random requests. */
export function checkKvCache(cache: KvCache, cells: NativeCells, seed: number): void {
  const random = seededRandom(seed);
  const below = (limit: number): number => Math.floor(random() * limit);
  const seen: Int32Array[] = [];
  for (let step = 0; step < 300; step++) {
    const running = [...cache.running];
    const chosen = running[below(running.length + 2)];
    if (chosen !== undefined) {
      if (random() < 0.8) compute(cache, cells, chosen, 1 + below(20));
      else end(cache, chosen, seen);
    } else if (cache.hasFreeSlot) {
      const earlier = [...seen, ...running.map(computedTokens)];
      const continued = random() < 0.7 ? earlier[below(earlier.length)] : undefined;
      begin(cache, newSequence(below, continued), earlier);
    }
    if (random() < 0.02) cache.evictAll();
    if (random() < 0.1) cache.gather([...cache.running].filter(() => random() < 0.7));
    checkBooks(cache, cells);
  }
  for (const sequence of [...cache.running]) end(cache, sequence, seen);
  cache.evictAll();
  expect(cells.used).toBe(0);
  expect(cache.usedTokens).toBe(0);
}

function begin(cache: KvCache, sequence: Sequence, seen: readonly Int32Array[]): void {
  const promised = cache.cachedLength(sequence);
  const others = new Set([...cache.running].map(({ slot }) => slot));
  if (!cache.admit(sequence, 1)) return;
  expect(others.has(sequence.slot), "a slot is given to one sequence only").toBe(false);
  expect(sequence.computed).toBeLessThanOrEqual(promised);
  expect(sequence.computed).toBeLessThan(sequence.tokens.length);
  expect(sequence.computed).toBeLessThanOrEqual(longestCommon(seen, sequence));
}

/** Reads prompt tokens, or samples one and another, as far as there is room. */
function compute(cache: KvCache, cells: NativeCells, sequence: Sequence, count: number): void {
  const room = cache.makeRoom(count);
  for (let i = 0; i < Math.min(count, room); i++) {
    const at = sequence.computed;
    if (at === sequence.tokens.length) sequence.tokens.push(at % 3);
    cells.compute(sequence.slot, at, sequence.tokens.values[at] as number);
    sequence.computed++;
  }
  if (sequence.computed >= sequence.promptLength) cache.share(sequence, sequence.promptLength);
}

function end(cache: KvCache, sequence: Sequence, seen: Int32Array[]): void {
  seen.push(computedTokens(sequence));
  cache.share(sequence, sequence.computed);
  cache.release(sequence);
  expect(sequence).toMatchObject({ slot: -1, computed: 0 });
}

function checkBooks(cache: KvCache, cells: NativeCells): void {
  for (const sequence of cache.running) {
    expect(cells.tokensOf(sequence.slot)).toEqual([...computedTokens(sequence)]);
  }
  expect(cache.usedTokens).toBe(cells.used);
  expect(cache.usedTokens).toBeLessThanOrEqual(cache.capacity);
}

function computedTokens({ tokens, computed }: Sequence): Int32Array {
  return tokens.values.slice(0, computed);
}

function longestCommon(seen: readonly Int32Array[], { tokens }: Sequence): number {
  const lengths = seen.map((other) => {
    const end = other.findIndex((token, i) => i >= tokens.length || token !== tokens.values[i]);
    return end < 0 ? other.length : end;
  });
  return Math.max(0, ...lengths);
}

/** A prompt over a small alphabet, or one that continues where an earlier request ended. */
function newSequence(below: (limit: number) => number, continued?: Int32Array): Sequence {
  const begun = continued === undefined ? [] : continued.slice(0, below(continued.length + 1));
  const rest = Array.from({ length: 1 + below(30) }, () => below(3));
  const prompt = Int32Array.from([...begun, ...rest].slice(0, 90));
  return testSequence(prompt);
}

/** For tests: a waiting sequence with this prompt, which is never sampled. */
export function testSequence(prompt: Int32Array): TextSequence {
  const inert = {} as Pick<TextSequence, "request" | "sampler">;
  return {
    ...inert,
    handle: 0,
    isFirst: true,
    fairKey: "test",
    priority: 0,
    rank: 0,
    waitingSinceMs: 0,
    arrivedMs: 0,
    tokens: new TokenList(prompt, 4),
    promptLength: prompt.length,
    grammar: undefined,
    reasoning: undefined,
    slot: -1,
    admitted: 0,
    computed: 0,
    exact: 0,
    isDeterministic: false,
    adapter: 0,
    group: "",
    sampled: 0,
    scored: prompt.length,
    shared: false,
    started: false,
    planned: 0,
    drafter: undefined,
    drafted: 0,
    blocker: undefined,
    blockedLength: 0,
  };
}

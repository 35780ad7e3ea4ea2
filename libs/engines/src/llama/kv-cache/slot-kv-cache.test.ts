// holds: engine-batching

import { describe, expect, it } from "vitest";
import { checkKvCache, type NativeCells, testSequence } from "../testing/test-kv-cache.ts";
import type { Sequence } from "./sequence.ts";
import { type KvSlots, SlotKvCache } from "./slot-kv-cache.ts";

/** The streams of a cache split by slots, and how often they were copied and exchanged. */
class Streams implements KvSlots, NativeCells {
  copies = 0;
  swaps = 0;
  readonly #streams = new Map<number, number[]>();

  compute(slot: number, position: number, token: number): void {
    const stream = this.#stream(slot);
    expect(position, "a slot is written where it ends").toBe(stream.length);
    stream.push(token);
  }

  truncate(slot: number, length: number): void {
    this.#stream(slot).splice(length);
  }

  copy(from: number, to: number, length: number, held: number): void {
    expect(from).not.toBe(to);
    expect(this.#stream(from)).toHaveLength(held);
    this.#streams.set(to, this.#stream(from).slice(0, length));
    this.copies++;
  }

  swap(a: number, b: number): void {
    expect(a).not.toBe(b);
    const held = this.#stream(a);
    this.#streams.set(a, this.#stream(b));
    this.#streams.set(b, held);
    this.swaps++;
  }

  tokensOf(slot: number): number[] {
    return this.#stream(slot);
  }

  get used(): number {
    return [...this.#streams.values()].reduce((sum, stream) => sum + stream.length, 0);
  }

  #stream(slot: number): number[] {
    const stream = this.#streams.get(slot) ?? [];
    this.#streams.set(slot, stream);
    return stream;
  }
}

function newCache(maxSequences: number): { cache: SlotKvCache; streams: Streams } {
  const streams = new Streams();
  const cache = new SlotKvCache(streams, { kvTokens: maxSequences * 1000, maxSequences });
  return { cache, streams };
}

/** `length` tokens that differ by number from the first one on, but for a shared beginning. */
function prompt(number: number, length: number, shared = 0): Int32Array {
  return Int32Array.from({ length }, (_, i) => (i < shared ? i : number * 10_000 + i));
}

function start(cache: SlotKvCache, streams: Streams, tokens: Int32Array): Sequence {
  const sequence = testSequence(tokens);
  expect(cache.admit(sequence)).toBe(true);
  for (; sequence.computed < tokens.length; sequence.computed++) {
    streams.compute(sequence.slot, sequence.computed, tokens[sequence.computed] as number);
  }
  return sequence;
}

describe("SlotKvCache", () => {
  for (const seed of [1, 2, 3, 4, 5]) {
    it(`keeps true books over random requests (seed ${seed})`, () => {
      const { cache, streams } = newCache(5);
      checkKvCache(cache, streams, seed);
      expect(streams.copies).toBeGreaterThan(0);
    });
  }

  it("reuses the slot whose tokens a request continues, without a copy", () => {
    const { cache, streams } = newCache(3);
    const first = start(cache, streams, prompt(1, 100));
    const { slot } = first;
    cache.release(first);
    const next = testSequence(Int32Array.of(...prompt(1, 100), 7, 8));
    cache.admit(next);
    expect(next).toMatchObject({ slot, computed: 100 });
    expect(streams.copies).toBe(0);
  });

  it("copies a prefix from a slot that runs", () => {
    const { cache, streams } = newCache(3);
    const first = start(cache, streams, prompt(1, 100, 40));
    const second = testSequence(prompt(2, 60, 40));
    expect(cache.cachedLength(second)).toBe(40);
    cache.admit(second);
    expect(second.computed).toBe(40);
    expect(second.slot).not.toBe(first.slot);
    expect(streams.copies).toBe(1);
  });

  it("copies a short prefix of a long conversation and leaves that where it is", () => {
    const { cache, streams } = newCache(3);
    const long = start(cache, streams, prompt(1, 400, 40));
    cache.release(long);
    const other = start(cache, streams, prompt(2, 60, 40));
    expect(streams.copies).toBe(1);
    cache.release(other);
    expect(cache.cachedLength(testSequence(prompt(1, 401, 40)))).toBe(400);
  });

  it("computes a prefix that is not worth its copy", () => {
    const { cache, streams } = newCache(3);
    start(cache, streams, prompt(1, 100, 10));
    const second = testSequence(prompt(2, 60, 10));
    cache.admit(second);
    expect(second.computed).toBe(0);
    expect(streams.copies).toBe(0);
  });

  it("gives up the slot that was unused for longest, and an empty one before any", () => {
    const { cache, streams } = newCache(3);
    for (const number of [1, 2]) cache.release(start(cache, streams, prompt(number, 50)));
    cache.release(start(cache, streams, prompt(3, 50)));
    expect(cache.usedTokens).toBe(150);
    cache.release(start(cache, streams, prompt(1, 60)));
    cache.release(start(cache, streams, prompt(4, 50)));
    const left = [1, 2, 3, 4].filter(
      (number) => cache.cachedLength(testSequence(prompt(number, 60))) > 0,
    );
    expect(left).toEqual([1, 3, 4]);
  });

  it("moves sequences next to each other, and what idle slots keep with them", () => {
    const { cache, streams } = newCache(8);
    const running = [1, 2, 3, 4, 5].map((number) => start(cache, streams, prompt(number, 20)));
    for (const at of [1, 3]) cache.release(running[at] as Sequence);
    const left = [...cache.running];
    expect(left.map(({ slot }) => slot)).toEqual([0, 2, 4]);
    cache.gather(left);
    const slots = left.map(({ slot }) => slot).toSorted((a, b) => a - b);
    expect((slots[2] as number) - (slots[0] as number)).toBe(2);
    for (const { slot, tokens } of left)
      expect(streams.tokensOf(slot)).toEqual([...tokens.values.subarray(0, 20)]);
    for (const number of [2, 4]) {
      expect(cache.cachedLength(testSequence(prompt(number, 30)))).toBe(20);
    }
    const { swaps } = streams;
    cache.gather(left);
    expect(streams.swaps).toBe(swaps);
  });

  it("moves the sequences past the slots that keep the most", () => {
    const { cache, streams } = newCache(8);
    // Slots 0, 2, 3 and 5 run; of the idle ones between them, 1 is long to move and 4 is short.
    const lengths = [20, 900, 20, 20, 30, 20];
    const all = lengths.map((length, i) => start(cache, streams, prompt(i, length)));
    for (const at of [1, 4]) cache.release(all[at] as Sequence);
    cache.gather([...cache.running]);
    const slots = [...cache.running].map(({ slot }) => slot).toSorted((a, b) => a - b);
    expect(slots).toEqual([2, 3, 4, 5]);
    expect(cache.cachedLength(testSequence(prompt(1, 901)))).toBe(900);
    expect(streams.swaps).toBe(1);
  });

  it("moves long sequences at once, and again when enough rounds have passed", () => {
    const { cache, streams } = newCache(3);
    const length = 1500;
    const gap = () => {
      const [low, high] = [...cache.running].map(({ slot }) => slot).toSorted((a, b) => a - b);
      return (high as number) - (low as number);
    };
    const endMiddle = () => {
      cache.release([...cache.running].find(({ slot }) => slot === 1) as Sequence);
      expect(gap()).toBe(2);
    };
    for (const number of [1, 2, 3]) start(cache, streams, prompt(number, length));
    endMiddle();
    cache.gather([...cache.running]);
    expect(gap()).toBe(1);
    // Of 4,096 tokens 1,096 are left, and a round brings 32 more.
    start(cache, streams, prompt(4, length));
    endMiddle();
    const rounds = Math.ceil((2 * length - 1096) / 32);
    for (let round = 1; round < rounds; round++) cache.gather([...cache.running]);
    expect(gap()).toBe(2);
    cache.gather([...cache.running]);
    expect(gap()).toBe(1);
    expect(streams.swaps).toBe(2);
  });

  it("refuses a sequence when every slot runs", () => {
    const { cache, streams } = newCache(1);
    start(cache, streams, prompt(1, 20));
    expect(cache.hasFreeSlot).toBe(false);
    expect(cache.admit(testSequence(prompt(1, 30)))).toBe(false);
  });
});

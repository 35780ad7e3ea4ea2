// holds: train-tokenizer

import { seededRandom } from "@heddle/base/random";
import { expect, test } from "vitest";
import { PairHeap } from "./pair-heap.ts";
import { WordTable } from "./word-table.ts";

test("word table: numbers words by their first appearance, whatever surrounds them", () => {
  const random = seededRandom(3);
  const text = Uint8Array.from({ length: 60_000 }, () => random() * 4);
  const table = new WordTable();
  const numbers = new Map<string, number>();
  let bytes = 0;
  for (let begin = 0; begin < text.length - 20; begin += 3) {
    const end = begin + Math.floor(random() * 20);
    const word = text.subarray(begin, end).join();
    if (!numbers.has(word)) bytes += end - begin;
    if (!numbers.has(word)) numbers.set(word, numbers.size);
    expect(table.add(text, begin, end)).toBe(numbers.get(word));
  }
  expect([table.size, table.byteLength]).toEqual([numbers.size, bytes]);
  expect(numbers.size).toBeGreaterThan(10_000);
  for (const [word, number] of numbers) expect(table.bytesOf(number).join()).toBe(word);
});

test("word table: a word longer than all before it finds room", () => {
  const table = new WordTable();
  const long = new Uint8Array(50_000).fill(7);
  expect([table.add(long, 0, 3), table.add(long, 0, 50_000)]).toEqual([0, 1]);
  expect(table.bytesOf(1)).toEqual(long);
});

test("pair heap: pops by first, then by second, also between pushes", () => {
  const random = seededRandom(5);
  const heap = new PairHeap();
  const kept: { first: number; second: number }[] = [];
  const popBoth = () => {
    kept.sort((a, b) => a.first - b.first || a.second - b.second);
    expect(heap.pop()).toEqual(kept.shift());
  };
  for (let turn = 0; turn < 2_000; turn++) {
    const pair = { first: Math.floor(random() * 9) - 4, second: Math.floor(random() * 50) };
    heap.push(pair.first, pair.second);
    kept.push(pair);
    if (random() < 0.4) popBoth();
  }
  while (kept.length > 0) popBoth();
  expect(heap.pop()).toBeUndefined();
});

// holds: train-tokenizer

import { seededRandom } from "@heddle/base/random";
import { expect, test } from "vitest";
import { trainBpe } from "./bpe-trainer.ts";
import { textOfKinds } from "./testing/random-text.ts";

const bytes = (text: string) => new TextEncoder().encode(text);

/** The definition: all words are counted again for each pair. */
function byDefinition(words: readonly string[], limit: number): string[] {
  const chains = words.map((word) => [...bytes(word)]);
  const pairs: string[] = [];
  const pieces = Array.from({ length: 256 }, (_, byte) => String.fromCharCode(byte));
  const spelled = (pair: string) =>
    pair
      .split(" ")
      .map((symbol) => pieces[Number(symbol)])
      .join("");
  while (pairs.length < limit) {
    const counts = new Map<string, number>();
    for (const chain of chains) {
      for (let i = 1; i < chain.length; i++) {
        const pair = `${chain[i - 1]} ${chain[i]}`;
        counts.set(pair, (counts.get(pair) ?? 0) + 1);
      }
    }
    const isNew = ([pair, count]: [string, number]) => count > 1 && !pieces.includes(spelled(pair));
    const best = [...counts].filter(isNew).toSorted(byCountThenAge)[0]?.[0];
    if (best === undefined) break;
    for (const chain of chains) {
      for (let i = 1; i < chain.length; i++) {
        if (`${chain[i - 1]} ${chain[i]}` === best) chain.splice(i - 1, 2, 256 + pairs.length);
      }
    }
    pairs.push(best);
    pieces.push(spelled(best));
  }
  return pairs;
}

function byCountThenAge([a, countA]: [string, number], [b, countB]: [string, number]): number {
  const [left = 0, right = 0] = a.split(" ").map(Number);
  const [otherLeft = 0, otherRight = 0] = b.split(" ").map(Number);
  return countB - countA || left - otherLeft || right - otherRight;
}

const PATTERN =
  /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+/gu;

test.each([1, 2, 3, 4])(
  "trainer: pairs equal the definition, with ties and overlaps (seed %i)",
  (seed) => {
    const random = seededRandom(seed);
    // Few letters, so that counts are equal and pairs overlap.
    const letters = "aab b'sé\n".slice(0, 3 + 2 * seed);
    const text = Array.from({ length: 400 }, () => letters[Math.floor(random() * letters.length)]);
    const words = text.join("").match(PATTERN) ?? [];
    const pairs = trainBpe(bytes(text.join("")), 60);
    expect(pairs.map(({ left, right }) => `${left} ${right}`)).toEqual(byDefinition(words, 60));
    expect(pairs.length).toBeGreaterThan(10);
  },
);

test("trainer: a pair that occurs once, or across words, is not merged", () => {
  expect(trainBpe(bytes("ab"), 10)).toEqual([]);
  expect(trainBpe(bytes("a1a1a1"), 10)).toEqual([]);
  expect(trainBpe(bytes("ab ab"), 10)).toEqual([{ left: 97, right: 98 }]);
  expect(trainBpe(new Uint8Array(), 10)).toEqual([]);
});

test("trainer: a word of more than 256 bytes counts for nothing", () => {
  const learned = (length: number) => trainBpe(bytes("a".repeat(length)), 300).length;
  expect([learned(256) > 0, learned(257)]).toEqual([true, 0]);
});

test("trainer: with more words than its table holds it learns the frequent ones", () => {
  // 280,000 words that occur once, and among them one that occurs often.
  const words = Array.from({ length: 280_000 }, (_, i) =>
    i % 100 === 0 ? " heddle" : ` ${1_000_000 + i}`,
  );
  const pairs = trainBpe(bytes(words.join("")), 60);
  const pieces = Array.from({ length: 256 }, (_, byte) => String.fromCharCode(byte));
  for (const { left, right } of pairs) pieces.push(`${pieces[left]}${pieces[right]}`);
  expect(pieces).toContain(" heddle");
});

test("trainer: the same bytes give the same pairs, also where they are not text", () => {
  const text = textOfKinds(seededRandom(7), 20_000);
  const first = trainBpe(text, 300);
  expect(first).toHaveLength(300);
  expect(trainBpe(text.slice(), 300)).toEqual(first);
});

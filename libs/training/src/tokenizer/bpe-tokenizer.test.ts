// holds: train-tokenizer

import { seededRandom } from "@heddle/base/random";
import { expect, test } from "vitest";
import { BpeTokenizer } from "./bpe-tokenizer.ts";
import { trainBpe } from "./bpe-trainer.ts";
import { type BpeVocabulary, vocabularyOf } from "./bpe-vocabulary.ts";
import { eachWord } from "./pre-tokenizer.ts";
import { randomText, textOfKinds } from "./testing/random-text.ts";

const bytes = (text: string) => new TextEncoder().encode(text);

const PATTERN =
  /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+/gu;

function wordsOf(text: Uint8Array): Uint8Array[] {
  const words: Uint8Array[] = [];
  eachWord(text, (begin, end) => words.push(text.subarray(begin, end)));
  return words;
}

/** The definition: of all adjacent pairs the one of the first merge, the leftmost of them. */
function byDefinition({ byteTokens, merges }: BpeVocabulary, text: Uint8Array): number[] {
  return wordsOf(text).flatMap((word) => {
    const chain = Array.from(word, (byte) => byteTokens[byte] ?? 0);
    for (const { left, right, result } of merges) {
      for (let i = 0; i + 1 < chain.length; i++) {
        if (chain[i] === left && chain[i + 1] === right) chain.splice(i, 2, result);
      }
    }
    return chain;
  });
}

test.each([1, 2, 3])("pre-tokenizer: cuts texts as GPT-2's pattern does (seed %i)", (seed) => {
  const text = randomText(seededRandom(seed), 5_000);
  const words = wordsOf(bytes(text)).map((word) =>
    new TextDecoder("utf-8", { ignoreBOM: true }).decode(word),
  );
  expect(words).toEqual(text.match(PATTERN));
});

test("pre-tokenizer: each byte that is not UTF-8 counts as a character", () => {
  const cut = (...text: number[]) => wordsOf(Uint8Array.from(text)).map((word) => [...word]);
  // Truncated, overlong, a surrogate, above U+10FFFF, a continuation byte alone.
  expect(cut(0x61, 0xc3)).toEqual([[0x61], [0xc3]]);
  expect(cut(0xc1, 0x81, 0x61)).toEqual([[0xc1, 0x81], [0x61]]);
  expect(cut(0x61, 0xf0, 0x81, 0x81, 0x81)).toEqual([[0x61], [0xf0, 0x81, 0x81, 0x81]]);
  expect(cut(0xed, 0xa0, 0x80, 0x31)).toEqual([[0xed, 0xa0, 0x80], [0x31]]);
  expect(cut(0xf4, 0x90, 0x80, 0x80)).toEqual([[0xf4, 0x90, 0x80, 0x80]]);
  expect(cut(0x20, 0x80, 0x20)).toEqual([[0x20, 0x80], [0x20]]);
});

test.each([1, 2, 3])(
  "tokenizer: tokens equal the definition, any bytes round-trip (seed %i)",
  (seed) => {
    const random = seededRandom(seed);
    const vocabulary = vocabularyOf(trainBpe(textOfKinds(random, 20_000), 400), 4);
    const tokenizer = new BpeTokenizer(vocabulary);
    for (const length of [0, 1, 2, 50, 3_000]) {
      const text = textOfKinds(random, length);
      const tokens = tokenizer.encode(text);
      expect([...tokens]).toEqual(byDefinition(vocabulary, text));
      expect([...tokenizer.decode(tokens)]).toEqual([...text]);
      const noise = Uint8Array.from({ length }, () => random() * 256);
      expect([...tokenizer.decode(tokenizer.encode(noise))]).toEqual([...noise]);
    }
  },
);

test("tokenizer: a word of a million letters, and more words than the cache holds", () => {
  const tokenizer = new BpeTokenizer(vocabularyOf(trainBpe(bytes("aaaa aaaa bcbc"), 10), 0));
  const long = bytes("a".repeat(1_000_000));
  expect(tokenizer.encode(long)).toHaveLength(250_000);
  const words = bytes(Array.from({ length: 140_000 }, (_, i) => ` ${i}`).join(""));
  const back = tokenizer.decode(tokenizer.encode(words));
  expect(new TextDecoder().decode(back) === new TextDecoder().decode(words)).toBe(true);
  expect(tokenizer.encode(bytes("bcbc"))).toHaveLength(2);
});

test("tokenizer: special tokens decode to nothing; of a repeated pair the first counts", () => {
  const pairs = [
    { left: 97, right: 98 },
    { left: 97, right: 98 },
  ];
  const tokenizer = new BpeTokenizer(vocabularyOf(pairs, 2));
  expect([...tokenizer.encode(bytes("ab"))]).toEqual([2 + 256]);
  expect([...tokenizer.decode([0, 1, 2 + 97, 9_999])]).toEqual([97]);
});

// holds: api-long-prompt-others

import fc from "fast-check";
import { expect, it } from "vitest";
import type { TextCuts } from "../protocol/thread-messages.ts";
import { textPieces } from "./text-pieces.ts";

/** What the native library can read at once without harm. */
const MAX_PIECE_CHARS = 8 * 1024;
/** The cuts of vocabularies of byte pairs. */
const WORDS: TextCuts = {
  atSpaces: true,
  atSymbols: true,
  anywhere: true,
  known: undefined,
  inDigits: false,
  spaceTokens: 0,
};

it("text pieces: the whole text, none of them too long or ending within a character", () => {
  const word = fc.constantFrom("word", " ", "\n", "。", "😀", "it's", "7", "=".repeat(5_000), "ü");
  fc.assert(
    fc.property(fc.array(word, { maxLength: 40 }), fc.nat(3_000), (words, times) => {
      const text = words
        .join("")
        .repeat(1 + times)
        .slice(0, 200_000)
        .toWellFormed();
      const pieces = [...textPieces(text, WORDS)];
      expect(pieces.join("")).toBe(text);
      expect(Math.max(...pieces.map(({ length }) => length))).toBeLessThanOrEqual(MAX_PIECE_CHARS);
      expect(pieces.every((piece) => piece.isWellFormed())).toBe(true);
      if (text.length > 0) expect(pieces).not.toContain("");
    }),
    { numRuns: 200 },
  );
});

it("text pieces: begin at the space before a word, else at a symbol, else anywhere", () => {
  const startsOf = (text: string) => [...textPieces(text, WORDS)].slice(1).map((piece) => piece[0]);
  expect(new Set(startsOf("the rain in Spain ".repeat(3_000)))).toEqual(new Set([" "]));
  expect(new Set(startsOf("雨が降る。".repeat(9_000)))).toEqual(new Set(["。"]));
  expect(new Set(startsOf("it's,".repeat(9_000)))).toEqual(new Set([","]));
  expect(startsOf("A".repeat(30_000))).toEqual(["A", "A", "A"]);
  expect(startsOf("😀".repeat(9_000)).every((start) => start !== undefined)).toBe(true);
});

// holds: api-long-prompt

import fc from "fast-check";
import { expect, it } from "vitest";
import { PromptBound } from "./prompt-bound.ts";

/** A vocabulary of these tokens. */
function boundOf(tokens: readonly string[], dropped = ""): PromptBound {
  const texts = tokens.map((token) => Buffer.from(token, "utf8"));
  let end = 0;
  const offsets = Uint32Array.from([0, ...texts.map(({ length }) => (end += length))]);
  const kept = new Uint8Array(256).fill(1);
  for (const byte of Buffer.from(dropped)) kept[byte] = 0;
  return new PromptBound({ bytes: Buffer.concat(texts), offsets, kept });
}

it("prompt bound: at most the tokens that a prompt of the vocabulary's tokens has", () => {
  const vocabulary = ["a", " the", "hello", "ü", "—".repeat(3), "        ", "<|im_end|>"];
  const bound = boundOf(vocabulary);
  const token = fc.constantFrom(...vocabulary, 7);
  fc.assert(
    fc.property(fc.array(token, { maxLength: 200 }), fc.nat(3), (parts, most) => {
      expect(bound.exceeds(parts, most) ?? 0).toBeLessThanOrEqual(parts.length);
      const texts = parts.filter((part) => typeof part === "string");
      expect(bound.exceeds([texts.join("")], most) ?? 0).toBeLessThanOrEqual(texts.length);
    }),
  );
});

it("prompt bound: how many tokens a text has at least, where these are too many", () => {
  const bound = boundOf(["a", "abcd", "          "]);
  expect(bound.exceeds(["abcd".repeat(11)], 10)).toBe(11);
  expect(bound.exceeds(["abcd".repeat(10)], 10)).toBeUndefined();
  expect(bound.exceeds([7, "abcd".repeat(9), 7], 10)).toBe(11);
  expect(bound.exceeds([" \n".repeat(50)], 10)).toBeUndefined();
  expect(bound.exceeds([" \n".repeat(1_000)], 10)).toBe(200);
  expect(bound.exceeds(["ü".repeat(21)], 10)).toBe(11);
});

it("prompt bound: counts nothing that a vocabulary may drop", () => {
  const bound = boundOf(["a", "abcd", "          "], " \n");
  expect(bound.exceeds([" \n".repeat(1_000)], 10)).toBeUndefined();
  expect(bound.exceeds([" \nabcd".repeat(11)], 10)).toBe(11);
  expect(boundOf(["abcd"], "abcd").exceeds(["abcd".repeat(1_000)], 10)).toBeUndefined();
});

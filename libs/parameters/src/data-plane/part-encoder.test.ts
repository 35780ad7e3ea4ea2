// holds: train-torch

import { readFileSync } from "node:fs";
import { pattern } from "@heddle/training/testing/pattern";
import { expect, test } from "vitest";
import { type EncoderOptions, PartEncoder } from "./part-encoder.ts";

// The error of an encoding is added to the next part. PyTorch computed the rounds in float32, by
// tools/torch-reference.py; they are equal bit by bit.

interface Reference {
  readonly bf16: readonly (readonly number[])[];
  readonly int8: readonly {
    readonly scales: readonly number[];
    readonly integers: readonly number[];
  }[];
  readonly topk: readonly {
    readonly indices: readonly number[];
    readonly values: readonly number[];
  }[];
}

const BLOCK = 256;
const ELEMENTS = 2 * BLOCK;
const path = new URL("../testing/torch-reference.json", import.meta.url);
const reference = JSON.parse(readFileSync(path, "utf8")) as Reference;
const layout = {
  segments: [{ parameter: "p", begin: 0, end: ELEMENTS, offset: 0 }],
  elements: ELEMENTS,
};

/** The second block is small, so that its scale differs. */
const part = (round: number) =>
  pattern(50 + round, ELEMENTS).map((value, i) => (value + 1 / 4096) / (i < BLOCK ? 1 : 128));

/** The bytes of three parts, one after the other. */
function encoded(options: EncoderOptions): ArrayBuffer[] {
  const encoder = new PartEncoder(layout, options);
  return [0, 1, 2].map((round) => {
    const { bytes, pieces } = encoder.encode({ p: part(round) });
    const copy = Uint8Array.from(pieces.flatMap((piece) => [...piece]));
    expect(copy).toHaveLength(bytes);
    return copy.buffer;
  });
}

test("bf16: each round sends PyTorch's rounding, with the error of earlier rounds", () => {
  const rounds = encoded({ compression: "bf16", topkFraction: 0 });
  expect(rounds.map((bytes) => [...new Uint16Array(bytes)])).toEqual(reference.bf16);
});

test("int8: each round sends PyTorch's scales and integers, with the error before", () => {
  const rounds = encoded({ compression: "int8", topkFraction: 0 });
  for (const [round, bytes] of rounds.entries()) {
    const expected = reference.int8[round];
    expect([...new Float32Array(bytes, 0, 2)]).toEqual(expected?.scales.map(Math.fround));
    expect([...new Int8Array(bytes, 16)]).toEqual(expected?.integers);
  }
});

test("top-k: each round sends the greatest of the part and the residual", () => {
  const rounds = encoded({ compression: "topk", topkFraction: 8 / ELEMENTS });
  for (const [round, bytes] of rounds.entries()) {
    const expected = reference.topk[round];
    const odd = (_: number, i: number) => i % 2 === 1;
    expect([...new Uint32Array(bytes)].filter((_, i) => i % 2 === 0)).toEqual(expected?.indices);
    expect([...new Float32Array(bytes)].filter(odd)).toEqual(expected?.values.map(Math.fround));
  }
});

test.each([
  [1.01 / ELEMENTS, 2],
  [5 / ELEMENTS, 5],
  [0.01, 6],
  [1e-9, 1],
])(
  "top-k: a fraction of %d sends %i elements, rounded up and at least one",
  (topkFraction, count) => {
    const [first] = encoded({ compression: "topk", topkFraction });
    expect(first?.byteLength).toBe(8 * count);
  },
);

test("encoder: a part that is not finite is refused before its error is kept", () => {
  const encoder = new PartEncoder(layout, { compression: "int8", topkFraction: 0 });
  const poisoned = part(0).with(3, Number.NaN);
  expect(() => encoder.encode({ p: poisoned })).toThrow(/NaN or infinity/);
  const [piece] = encoder.encode({ p: part(0) }).pieces;
  expect([...new Int8Array(Uint8Array.from(piece ?? []).buffer, 16)]).toEqual(
    reference.int8[0]?.integers,
  );
});

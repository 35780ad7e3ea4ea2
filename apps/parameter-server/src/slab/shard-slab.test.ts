// holds: ps-kernels, train-torch

import { readFileSync } from "node:fs";
import type { Optimizer } from "@heddle/training/optimizers/optimizer";
import { pattern } from "@heddle/training/testing/pattern";
import { expect, test } from "vitest";
import { ShardSlab } from "./shard-slab.ts";

// What PyTorch computed, by tools/torch-reference.py; the kernels compute in float32.

interface Reference {
  readonly optimizers: readonly {
    readonly name: string;
    readonly optimizer: Optimizer;
    readonly maxGradientNorm?: number;
    readonly rates: readonly number[];
    readonly gradientNorms: readonly number[];
    readonly after: readonly (readonly number[])[];
  }[];
  readonly pull: { readonly rate: number; readonly rounds: readonly (readonly number[])[] };
}

const ELEMENTS = 256;
const path = new URL("../testing/torch-reference.json", import.meta.url);
const reference = JSON.parse(readFileSync(path, "utf8")) as Reference;

function sumsOf(slab: ShardSlab): Float32Array {
  return new Float32Array(slab.memory.buffer, slab.accumulator.sums, ELEMENTS);
}

test.each(reference.optimizers)(
  "slab: takes PyTorch's steps: $name",
  ({ optimizer, maxGradientNorm, rates, gradientNorms, after }) => {
    const slab = new ShardSlab({ elements: ELEMENTS, optimizer, pullCompression: "none" });
    const parameters = slab.values(0);
    parameters.set([...pattern(1, 6), ...pattern(2, 4)]);
    for (const [i, rate] of rates.entries()) {
      const gradient = [...pattern(10 + 2 * i, 6), ...pattern(11 + 2 * i, 4)];
      // The sums are of two parts of weights 1 and 3 with the same gradient.
      sumsOf(slab).set(gradient.map((value) => 4 * value));
      const norm = Math.sqrt(slab.squares()) / 4;
      expect(norm).toBeCloseTo(gradientNorms[i] ?? 0, 5);
      const left = Math.min(1, (maxGradientNorm ?? Number.POSITIVE_INFINITY) / (norm + 1e-6));
      slab.apply({ rate, scale: left / 4, step: i + 1 });
      for (const [at, expected] of after[i]?.entries() ?? []) {
        expect(parameters[at], `step ${i + 1}, element ${at}`).toBeCloseTo(expected, 5);
      }
    }
    expect([...parameters.slice(10)]).toEqual(Array(ELEMENTS - 10).fill(0));
  },
);

test("compressed pulls: the changes are PyTorch's int8, with the error before", () => {
  const optimizer: Optimizer = { kind: "sgd", momentum: 0, nesterov: false };
  const slab = new ShardSlab({ elements: ELEMENTS, optimizer, pullCompression: "int8" });
  slab.values(0).set(pattern(55, ELEMENTS));
  slab.publishWhole();
  for (const [round, integers] of reference.pull.rounds.entries()) {
    sumsOf(slab).set(pattern(50 + round, ELEMENTS).map((value) => value + 1 / 4096));
    slab.apply({ rate: reference.pull.rate, scale: 1, step: round + 1 });
    const changes = slab.pulled("changes").slice(16);
    expect([...new Int8Array(changes.buffer)]).toEqual(integers);
  }
});

import { seededRandom } from "@heddle/base/random";
import { expect, test } from "vitest";
import { initialParameters } from "../initialize.ts";
import { Graph } from "../ir/graph.ts";
import type { Value } from "../ir/value.ts";
import { interpret } from "../reference/interpreter.ts";
import { runReference } from "../reference/reference-backend.ts";
import { gradientsOf } from "../training-program.ts";
import {
  type LanguageModelShape,
  languageModelLogits,
  languageModelParameters,
  languageModelProgram,
} from "./language-model.ts";

const SHAPE: LanguageModelShape = {
  vocab_size: 13,
  context_length: 6,
  hidden_size: 16,
  layers: 2,
  heads: 4,
  kv_heads: 2,
  intermediate_size: 24,
  rope_theta: 10_000,
  norm_epsilon: 1e-5,
};
const PARAMETERS = initialParameters(languageModelParameters(SHAPE), seededRandom(4));

function logits(tokens: readonly number[]): Float64Array {
  const graph = new Graph();
  const inputs: Record<string, Value> = { tokens: graph.input("tokens", [1, 6], "i32") };
  for (const { name, shape } of languageModelParameters(SHAPE)) {
    inputs[name] = graph.input(name, shape);
  }
  const [result] = interpret([languageModelLogits(graph, inputs, SHAPE)], {
    ...PARAMETERS,
    tokens,
  });
  return result as Float64Array;
}

test("language model: a position attends to itself and earlier ones only", () => {
  const base = logits([1, 2, 3, 4, 5, 6]);
  const later = logits([1, 2, 3, 9, 5, 6]);
  const rows = (data: Float64Array, from: number, to: number) => data.slice(from * 13, to * 13);
  expect(rows(later, 0, 3)).toEqual(rows(base, 0, 3));
  expect(rows(later, 3, 4)).not.toEqual(rows(base, 3, 4));
  expect(rows(later, 5, 6)).not.toEqual(rows(base, 5, 6));
});

test("language model: the same tokens in another order give other logits", () => {
  const last = (data: Float64Array) => [...data.slice(5 * 13)];
  expect(last(logits([1, 2, 3, 4, 5, 6]))).not.toEqual(last(logits([2, 1, 3, 4, 5, 6])));
});

test("language model: the initial loss is about the log of the vocabulary size", () => {
  const program = gradientsOf(languageModelProgram(SHAPE, 1));
  const tokens = { tokens: [1, 2, 3, 4, 5, 6], targets: [2, 3, 4, 5, 6, 7] };
  const { loss } = runReference(program, { ...PARAMETERS, ...tokens });
  expect(loss?.[0]).toBeCloseTo(Math.log(13), 1);
});

test("language model: sizes that do not divide are refused with both numbers", () => {
  expect(() => languageModelParameters({ ...SHAPE, heads: 3 })).toThrow(
    /hidden_size 16 .* heads 3/,
  );
  expect(() => languageModelParameters({ ...SHAPE, kv_heads: 3 })).toThrow(/heads 4 .* kv_heads 3/);
});

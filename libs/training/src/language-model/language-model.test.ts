import { seededRandom } from "@heddle/base/random";
import { expect, test } from "vitest";
import { initialParameters } from "../initialize.ts";
import { Graph } from "../ir/graph.ts";
import { elementCount, type Value } from "../ir/value.ts";
import type { Parameters } from "../parameter-client.ts";
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

function logits(tokens: readonly number[], parameters: Parameters = PARAMETERS): Float64Array {
  const graph = new Graph();
  const inputs: Record<string, Value> = { tokens: graph.input("tokens", [1, 6], "i32") };
  for (const { name, shape } of languageModelParameters(SHAPE)) {
    inputs[name] = graph.input(name, shape);
  }
  const [result] = interpret([languageModelLogits(graph, inputs, SHAPE)], {
    ...parameters,
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

const sumOf = (numbers: readonly number[]) => numbers.reduce((sum, each) => sum + each, 0);

/** The published equations, one position after the other. */
function byDefinition(parameters: Parameters, tokens: readonly number[]): number[][] {
  const { hidden_size: hidden, heads, kv_heads, intermediate_size, layers } = SHAPE;
  const [width, narrow] = [hidden / heads, (hidden / heads) * kv_heads];
  const weight = (name: string) => parameters[`${name}.weight`] ?? new Float32Array();
  const times = (row: readonly number[], name: string, columns: number) =>
    Array.from({ length: columns }, (_, column) =>
      sumOf(row.map((each, i) => each * (weight(name)[i * columns + column] ?? 0))),
    );
  const norm = (row: readonly number[], name: string) => {
    const scale = Math.sqrt(
      sumOf(row.map((each) => each * each)) / row.length + SHAPE.norm_epsilon,
    );
    return row.map((each, i) => (each / scale) * (weight(name)[i] ?? 0));
  };
  const rotated = (row: readonly number[], position: number) =>
    row.map((each, i) => {
      const pair = Math.floor((i % width) / 2);
      const angle = position * SHAPE.rope_theta ** ((-2 * pair) / width);
      const other = (i % 2 === 0 ? -1 : 1) * (row[i % 2 === 0 ? i + 1 : i - 1] ?? 0);
      return each * Math.cos(angle) + other * Math.sin(angle);
    });
  let rows = tokens.map((token) => [
    ...weight("token_embd").subarray(token * hidden, (token + 1) * hidden),
  ]);
  for (let layer = 0; layer < layers; layer++) {
    const at = (name: string) => `blk.${layer}.${name}`;
    const inputs = rows.map((row) => norm(row, at("attn_norm")));
    const queries = inputs.map((row, t) => rotated(times(row, at("attn_q"), hidden), t));
    const keys = inputs.map((row, t) => rotated(times(row, at("attn_k"), narrow), t));
    const values = inputs.map((row) => times(row, at("attn_v"), narrow));
    rows = rows.map((row, t) => {
      const mixed = Array.from({ length: heads }, (_, head) => {
        const from = Math.floor(head / (heads / kv_heads)) * width;
        const ofHead = (numbers: readonly number[] = [], begin = from) =>
          numbers.slice(begin, begin + width);
        const query = ofHead(queries[t], head * width);
        const scores = keys
          .slice(0, t + 1)
          .map((key) => sumOf(ofHead(key).map((each, i) => each * (query[i] ?? 0))));
        const shares = scores.map((score) => Math.exp(score / Math.sqrt(width)));
        return query.map(
          (_, i) =>
            sumOf(shares.map((share, u) => share * (ofHead(values[u])[i] ?? 0))) / sumOf(shares),
        );
      }).flat();
      const attended = times(mixed, at("attn_output"), hidden);
      const stream = row.map((each, i) => each + (attended[i] ?? 0));
      const input = norm(stream, at("ffn_norm"));
      const up = times(input, at("ffn_up"), intermediate_size);
      const gated = times(input, at("ffn_gate"), intermediate_size).map(
        (each, i) => (each / (1 + Math.exp(-each))) * (up[i] ?? 0),
      );
      const down = times(gated, at("ffn_down"), hidden);
      return stream.map((each, i) => each + (down[i] ?? 0));
    });
  }
  return rows.map((row) => times(norm(row, "output_norm"), "output", SHAPE.vocab_size));
}

test("language model: logits are those of the published equations", () => {
  const random = seededRandom(9);
  const parameters = Object.fromEntries(
    languageModelParameters(SHAPE).map(({ name, shape }) => [
      name,
      Float32Array.from({ length: elementCount(shape) }, () => random() - 0.3),
    ]),
  );
  const tokens = [1, 12, 3, 0, 5, 1];
  const expected = byDefinition(parameters, tokens).flat();
  for (const [i, value] of logits(tokens, parameters).entries()) {
    expect(value).toBeCloseTo(expected[i] ?? Number.NaN, 8);
  }
});

test("language model: parameters have GGUF's names, their sizes and GPT-2's deviations", () => {
  const [embedding, ...others] = languageModelParameters({ ...SHAPE, vocabulary: "abc" });
  const normal = (deviation: number) => ({ kind: "normal", deviation });
  expect(embedding).toEqual({
    name: "token_embd.abc.weight",
    shape: [13, 16],
    init: normal(0.02),
  });
  expect(others.slice(9).map(({ name, shape, init }) => [name, shape, init])).toEqual([
    ["blk.1.attn_norm.weight", [16], { kind: "ones" }],
    ["blk.1.attn_q.weight", [16, 16], normal(0.02)],
    ["blk.1.attn_k.weight", [16, 8], normal(0.02)],
    ["blk.1.attn_v.weight", [16, 8], normal(0.02)],
    ["blk.1.attn_output.weight", [16, 16], normal(0.01)],
    ["blk.1.ffn_norm.weight", [16], { kind: "ones" }],
    ["blk.1.ffn_gate.weight", [16, 24], normal(0.02)],
    ["blk.1.ffn_up.weight", [16, 24], normal(0.02)],
    ["blk.1.ffn_down.weight", [24, 16], normal(0.01)],
    ["output_norm.weight", [16], { kind: "ones" }],
    ["output.weight", [16, 13], normal(0.02)],
  ]);
});

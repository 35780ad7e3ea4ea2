// holds: train-gradients

import { seededRandom } from "@heddle/base/random";
import { describe, expect, it, test } from "vitest";
import { Graph } from "../ir/graph.ts";
import { elementCount, type Shape, type Value } from "../ir/value.ts";
import { interpret } from "../reference/interpreter.ts";
import { gradients } from "./gradient.ts";

const STEP = 1e-5;

interface Case {
  readonly name: string;
  readonly shapes: readonly Shape[];
  readonly build: (graph: Graph, inputs: readonly Value[], indices: Value) => Value;
  /** Maps the random numbers, 0 to 1, to a range where the operation is smooth. */
  readonly from?: number;
}

const cases: readonly Case[] = [
  { name: "add", shapes: [[3, 4], [4]], build: (g, [a, b]) => g.add(a!, b!) },
  {
    name: "sub",
    shapes: [
      [2, 1, 4],
      [3, 1],
    ],
    build: (g, [a, b]) => g.sub(a!, b!),
  },
  {
    name: "mul",
    shapes: [
      [3, 4],
      [3, 1],
    ],
    build: (g, [a, b]) => g.mul(a!, b!),
  },
  { name: "div", shapes: [[3, 4], [4]], build: (g, [a, b]) => g.div(a!, b!), from: 1 },
  { name: "max", shapes: [[3, 4], [4]], build: (g, [a, b]) => g.max(a!, b!) },
  { name: "min", shapes: [[4], [3, 4]], build: (g, [a, b]) => g.min(a!, b!) },
  { name: "clip", shapes: [[5]], build: (g, [a]) => g.clip(a!, 0.3, 0.7) },
  { name: "neg", shapes: [[5]], build: (g, [a]) => g.neg(a!) },
  { name: "exp", shapes: [[5]], build: (g, [a]) => g.exp(a!) },
  { name: "log", shapes: [[5]], build: (g, [a]) => g.log(a!), from: 0.5 },
  { name: "sqrt", shapes: [[5]], build: (g, [a]) => g.sqrt(a!), from: 0.5 },
  { name: "tanh", shapes: [[5]], build: (g, [a]) => g.tanh(a!), from: -0.5 },
  { name: "sigmoid", shapes: [[5]], build: (g, [a]) => g.sigmoid(a!), from: -0.5 },
  { name: "relu", shapes: [[9]], build: (g, [a]) => g.relu(a!), from: -0.5 },
  { name: "abs", shapes: [[9]], build: (g, [a]) => g.abs(a!), from: -0.5 },
  { name: "silu", shapes: [[5]], build: (g, [a]) => g.silu(a!), from: -0.5 },
  {
    name: "matmul",
    shapes: [
      [3, 4],
      [4, 2],
    ],
    build: (g, [a, b]) => g.matmul(a!, b!),
  },
  {
    name: "matmul, left transposed",
    shapes: [
      [2, 4, 3],
      [2, 4, 5],
    ],
    build: (g, [a, b]) => g.matmul(a!, b!, { transposeLeft: true }),
  },
  {
    name: "matmul, right transposed",
    shapes: [
      [3, 4],
      [2, 4],
    ],
    build: (g, [a, b]) => g.matmul(a!, b!, { transposeRight: true }),
  },
  {
    name: "matmul, both transposed",
    shapes: [
      [2, 4, 3],
      [2, 5, 4],
    ],
    build: (g, [a, b]) => g.matmul(a!, b!, { transposeLeft: true, transposeRight: true }),
  },
  { name: "sum over an axis", shapes: [[2, 3, 4]], build: (g, [a]) => g.sum(a!, [1]) },
  { name: "sum, kept", shapes: [[2, 3, 4]], build: (g, [a]) => g.sum(a!, [0, -1], true) },
  { name: "mean", shapes: [[2, 3]], build: (g, [a]) => g.mean(a!, [-1]) },
  { name: "reshape", shapes: [[2, 6]], build: (g, [a]) => g.reshape(a!, [3, -1]) },
  { name: "transpose", shapes: [[2, 3, 4]], build: (g, [a]) => g.transpose(a!, [2, 0, 1]) },
  { name: "broadcast", shapes: [[3, 1]], build: (g, [a]) => g.broadcast(a!, [2, 3, 4]) },
  { name: "slice", shapes: [[3, 5]], build: (g, [a]) => g.slice(a!, 1, 1, 4) },
  { name: "pad", shapes: [[3, 2]], build: (g, [a]) => g.pad(a!, 0, 1, 2) },
  {
    name: "concat",
    shapes: [
      [2, 3],
      [2, 1],
    ],
    build: (g, [a, b]) => g.concat([a!, b!], 1),
  },
  { name: "softmax", shapes: [[3, 4]], build: (g, [a]) => g.softmax(a!) },
  { name: "log-softmax", shapes: [[3, 4]], build: (g, [a]) => g.logSoftmax(a!) },
  {
    name: "rows gathered",
    shapes: [[4, 3]],
    build: (g, [a], indices) => g.gatherRows(a!, indices),
  },
  {
    name: "rows scattered",
    shapes: [[6, 3]],
    build: (g, [a], indices) => g.scatterAddRows(a!, indices, 4),
  },
];

describe("gradients: agree with central differences", () => {
  it.each(cases)("$name", ({ shapes, build, from = 0 }) => {
    const random = seededRandom(11);
    const graph = new Graph();
    const inputs = shapes.map((shape, i) => graph.input(`in${i}`, shape));
    const made = build(graph, inputs, graph.input("indices", [6], "i32"));
    const weights = graph.constant(
      Array.from({ length: elementCount(made.shape) }, random),
      made.shape,
    );
    const loss = graph.sum(graph.mul(made, weights));
    const slopes = gradients(graph, loss, inputs);
    const feeds: Record<string, number[]> = { indices: [0, 3, 1, 3, 3, 2] };
    for (const [i, shape] of shapes.entries()) {
      feeds[`in${i}`] = Array.from({ length: elementCount(shape) }, () => random() + from);
    }
    const exact = interpret(slopes, feeds);
    for (const [i, shape] of shapes.entries()) {
      expect(slopes[i]?.shape).toEqual(shape);
      const numbers = feeds[`in${i}`] as number[];
      for (const [at, number] of numbers.entries()) {
        const lossAt = (moved: number) => {
          const changed = { ...feeds, [`in${i}`]: numbers.with(at, moved) };
          return interpret([loss], changed)[0]?.[0] ?? Number.NaN;
        };
        const slope = (lossAt(number + STEP) - lossAt(number - STEP)) / (2 * STEP);
        expect(exact[i]?.[at]).toBeCloseTo(slope, 7);
      }
    }
  });
});

test("gradients: a value that is used twice receives the sum of both", () => {
  const graph = new Graph();
  const x = graph.input("x", []);
  const loss = graph.add(graph.mul(x, x), graph.mul(x, 3));
  expect(interpret(gradients(graph, loss, [x]), { x: [5] })[0]).toEqual(Float64Array.of(13));
});

test("gradients: a stopped value passes none, and an unused one has zeros", () => {
  const graph = new Graph();
  const [x, y] = [graph.input("x", [2]), graph.input("y", [3])];
  const loss = graph.sum(graph.mul(x, graph.stopGradient(x)));
  const [ofX, ofY] = interpret(gradients(graph, loss, [x, y]), { x: [2, 3], y: [0, 0, 0] });
  expect(ofX).toEqual(Float64Array.of(2, 3));
  expect(ofY).toEqual(new Float64Array(3));
});

test("gradients: a sign and a maximum pass none to a value that others use", () => {
  const graph = new Graph();
  const x = graph.input("x", [3]);
  const signs = graph.unary("sign", x);
  const loss = graph.sum(graph.mul(graph.mul(x, signs), graph.maxOver(x, [0], true)));
  const [slopes] = interpret(gradients(graph, loss, [x]), { x: [2, -5, 3] });
  expect(slopes).toEqual(Float64Array.of(3, -3, 3));
});

test("gradients: a loss that is not a scalar is refused", () => {
  const graph = new Graph();
  const x = graph.input("x", [2]);
  expect(() => gradients(graph, x, [x])).toThrow(/a loss is a scalar/);
});

import { expect, test } from "vitest";
import { Graph } from "../ir/graph.ts";
import { interpret } from "../reference/interpreter.ts";
import {
  ADAM,
  applyOptimizer,
  clipByGlobalNorm,
  type Optimizer,
  optimizerSlots,
} from "./optimizer.ts";

/** The parameter after some updates with the gradient 2 p, from p = 1. */
function after(optimizer: Optimizer, updates: number): number {
  const graph = new Graph();
  const parameter = graph.input("p", []);
  const names = optimizerSlots(optimizer);
  const slots = names.map((name) => graph.input(name, []));
  const time = { learningRate: graph.input("rate", []), step: graph.input("step", []) };
  const gradient = graph.mul(parameter, 2);
  const next = applyOptimizer(graph, optimizer, { parameter, gradient, slots }, time);
  const feeds: Record<string, number[]> = { p: [1], rate: [0.1], step: [0] };
  for (const name of names) feeds[name] = [0];
  for (let step = 1; step <= updates; step++) {
    feeds["step"] = [step];
    const [p, ...rest] = interpret([next.parameter, ...next.slots], feeds);
    feeds["p"] = [...(p ?? [])];
    for (const [i, name] of names.entries()) feeds[name] = [...(rest[i] ?? [])];
  }
  return feeds["p"]?.[0] ?? Number.NaN;
}

test("optimizer: plain SGD moves by the rate times the gradient", () => {
  expect(after({ kind: "sgd", momentum: 0, nesterov: false }, 2)).toBeCloseTo(0.64, 12);
});

test("optimizer: momentum and Nesterov momentum follow PyTorch's formulas", () => {
  // v1 = 2, p1 = 0.8; v2 = 0.9 * 2 + 1.6 = 3.4, p2 = 0.46.
  expect(after({ kind: "sgd", momentum: 0.9, nesterov: false }, 2)).toBeCloseTo(0.46, 12);
  // p1 = 1 - 0.1 (2 + 1.8) = 0.62; v2 = 1.8 + 1.24 = 3.04; p2 = 0.62 - 0.1 (1.24 + 2.736).
  expect(after({ kind: "sgd", momentum: 0.9, nesterov: true }, 2)).toBeCloseTo(0.2224, 12);
});

test("optimizer: Adam's first step is the rate; AdamW's decay is decoupled", () => {
  expect(after(ADAM, 1)).toBeCloseTo(0.9, 7);
  expect(after({ ...ADAM, kind: "adamw", weightDecay: 0.5 }, 1)).toBeCloseTo(0.9 - 0.05, 7);
});

test("clipping: keeps small gradients and scales large ones by their common norm", () => {
  const graph = new Graph();
  const inputs = [graph.input("a", [2]), graph.input("b", [1])];
  const { gradients, norm } = clipByGlobalNorm(graph, inputs, 1);
  const [a, b, n] = interpret([...gradients, norm], { a: [3, 0], b: [4] });
  expect(n?.[0]).toBe(5);
  expect(a?.[0]).toBeCloseTo(0.6, 5);
  expect(b?.[0]).toBeCloseTo(0.8, 5);
  const [small] = interpret(gradients, { a: [0.1, 0], b: [0.2] });
  expect(small?.[0]).toBe(0.1);
});

import { expect, test } from "vitest";
import { Graph } from "./graph.ts";

const graph = () => {
  const made = new Graph();
  return {
    g: made,
    a: made.input("a", [2, 3]),
    b: made.input("b", [4, 5]),
    i: made.input("i", [2], "i32"),
  };
};

test.each<[string, (parts: ReturnType<typeof graph>) => unknown, RegExp]>([
  [
    "shapes that do not broadcast",
    ({ g, a, b }) => g.add(a, b),
    /add: the shapes \[2,3\] and \[4,5\]/,
  ],
  ["matrices that do not chain", ({ g, a, b }) => g.matmul(a, b), /matmul: the shapes/],
  ["an axis that is not there", ({ g, a }) => g.sum(a, [2]), /reduceSum: the axes \[2\]/],
  ["an axis named twice", ({ g, a }) => g.sum(a, [1, -1]), /the axes \[1,-1\]/],
  ["another number of elements", ({ g, a }) => g.reshape(a, [4, -1]), /another number of elements/],
  ["a slice outside", ({ g, a }) => g.slice(a, 1, 1, 4), /slice: \[1, 4\) of axis 1/],
  [
    "a transposition that leaves an axis out",
    ({ g, a }) => g.transpose(a, [0]),
    /does not name every axis/,
  ],
  ["parts that do not join", ({ g, a, b }) => g.concat([a, b], 0), /concat: the shapes/],
  ["a stretch to a smaller shape", ({ g, a }) => g.broadcast(a, [3]), /does not stretch/],
  ["arithmetic on indices", ({ g, i }) => g.add(i, i), /indices \(i32\)/],
  ["rows named by numbers", ({ g, a, b }) => g.gatherRows(a, b), /i32 indices/],
  [
    "rows of more than a table",
    ({ g, i }) => g.gatherRows(g.input("cube", [2, 2, 2]), i),
    /expected a table \[v, d\] and i32 indices, got \[2,2,2\]/,
  ],
  [
    "rows without an index each",
    ({ g, a, i }) => g.scatterAddRows(a, g.reshape(i, [1, ...i.shape]), 4),
    /scatterAddRows: \[.*\] has no row for each index/,
  ],
  ["a name that is taken", ({ g }) => g.input("a", []), /input a already/],
  ["a size of zero", ({ g }) => g.input("c", [0]), /positive integers/],
  [
    "a constant of another size",
    ({ g }) => g.constant([1, 2], [3]),
    /does not fit the shape \[3\]/,
  ],
])("graph: refuses %s", (_what, build, message) => {
  expect(() => build(graph())).toThrow(message);
});

test("graph: the same number is one constant", () => {
  const { g } = graph();
  expect(g.scalar(2)).toBe(g.scalar(2));
});

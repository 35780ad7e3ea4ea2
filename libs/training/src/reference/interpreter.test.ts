import { expect, test } from "vitest";
import { Graph } from "../ir/graph.ts";
import { interpret } from "./interpreter.ts";

test("reference: an axis of size one stretches wherever it is", () => {
  const graph = new Graph();
  const sum = graph.add(graph.input("a", [2, 1, 3]), graph.input("b", [2, 1]));
  const feeds = { a: [1, 2, 3, 4, 5, 6], b: [10, 20] };
  expect(sum.shape).toEqual([2, 2, 3]);
  const expected = [11, 12, 13, 21, 22, 23, 14, 15, 16, 24, 25, 26];
  expect([...(interpret([sum], feeds)[0] ?? [])]).toEqual(expected);
});

test("reference: indices are whole numbers of rows", () => {
  const graph = new Graph();
  const rows = graph.gatherRows(graph.input("table", [3, 1]), graph.input("rows", [1], "i32"));
  const read = (index: number) => interpret([rows], { table: [7, 8, 9], rows: [index] })[0]?.[0];
  expect([read(0), read(2)]).toEqual([7, 9]);
  for (const wrong of [3, -1, 0.5, Number.NaN]) expect(() => read(wrong)).toThrow("outside 0 to 2");
});

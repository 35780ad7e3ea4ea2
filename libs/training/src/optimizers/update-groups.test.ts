import { expect, test } from "vitest";
import { Graph } from "../ir/graph.ts";
import { joinGroup, splitGroup, updateGroups } from "./update-groups.ts";

const of = (name: string, ...shape: number[]) => ({ name, shape });
const large = of("large", 16_385);
const atBound = of("at-bound", 128, 128);
const bias = of("bias", 7);

test("update groups: small parameters are one vector, large ones stay alone", () => {
  expect(updateGroups([large, atBound, bias])).toEqual([
    { name: "*", shape: [16_391], members: [atBound, bias] },
    { name: "large", shape: [16_385], members: [large] },
  ]);
});

test("update groups: one small parameter keeps its name and shape", () => {
  expect(updateGroups([large, atBound])).toEqual([
    { name: "large", shape: [16_385], members: [large] },
    { name: "at-bound", shape: [128, 128], members: [atBound] },
  ]);
});

test("update groups: a group of one is its tensor, whatever its axes", () => {
  const graph = new Graph();
  const value = graph.input("at-bound", [128, 128]);
  const group = { name: "at-bound", shape: [128, 128], members: [atBound] };
  expect(joinGroup(graph, group, [value])).toBe(value);
  expect(splitGroup(graph, group, value)).toEqual([value]);
});

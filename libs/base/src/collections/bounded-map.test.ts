import { expect, test } from "vitest";
import { BoundedMap } from "./bounded-map.ts";

test("bounded map: beyond its bound the entry that was set first is dropped", () => {
  const map = new BoundedMap<string, number>(2);
  map.set("a", 1).set("b", 2);
  expect([...map]).toEqual([
    ["a", 1],
    ["b", 2],
  ]);
  map.set("c", 3);
  expect([...map.keys()]).toEqual(["b", "c"]);
});

test("bounded map: an entry that is set again is the newest, and drops no other", () => {
  const map = new BoundedMap<string, number>(2);
  map.set("a", 1).set("b", 2).set("a", 3);
  expect([...map]).toEqual([
    ["b", 2],
    ["a", 3],
  ]);
  map.set("c", 4);
  expect([...map.keys()]).toEqual(["a", "c"]);
});

import { expect, test } from "vitest";
import { concatShape, slicedShape } from "./shapes.ts";

test("concatShape: sizes along the axis add up", () => {
  const parts = [
    [2, 3, 4],
    [2, 1, 4],
    [2, 5, 4],
  ];
  expect(concatShape(parts, 1)).toEqual([2, 9, 4]);
});

test("concatShape: refuses parts of another rank, of other sizes, and other axes", () => {
  const refused = (other: readonly number[]) => () => concatShape([[2, 3], other], 1);
  expect(refused([2, 3, 1])).toThrow(/concat: the shapes/);
  expect(refused([2])).toThrow(/concat: the shapes/);
  expect(refused([3, 3])).toThrow(/concat: the shapes/);
  expect(() => concatShape([[2, 3]], 2)).toThrow("no axis 2");
  expect(() => concatShape([], 0)).toThrow("no axis 0");
});

test("slicedShape: takes whole axes, and refuses empty slices", () => {
  expect(slicedShape([2, 3], 1, 0, 3)).toEqual([2, 3]);
  expect(slicedShape([2, 3], 0, 1, 2)).toEqual([1, 3]);
  expect(() => slicedShape([2, 3], 1, 2, 2)).toThrow("outside");
  expect(() => slicedShape([2, 3], 1, -1, 2)).toThrow("outside");
});

import { expect, test } from "vitest";
import {
  broadcastShape,
  concatShape,
  matmulShape,
  normalAxes,
  permutedShape,
  reducedShape,
  reshapedShape,
  slicedShape,
} from "./shapes.ts";

test("broadcastShape: aligns axes at the end, and stretches sizes of 1", () => {
  expect(broadcastShape("add", [2, 1, 4], [3, 1])).toEqual([2, 3, 4]);
  expect(broadcastShape("add", [], [2, 3])).toEqual([2, 3]);
  expect(broadcastShape("add", [1], [0])).toEqual([0]);
  expect(() => broadcastShape("add", [2, 3], [2])).toThrow(
    "add: the shapes [2,3] and [2] do not fit",
  );
});

test("matmulShape: joins rows and columns, of either side transposed", () => {
  const flags = (transposeLeft: boolean, transposeRight: boolean) => ({
    transposeLeft,
    transposeRight,
  });
  expect(matmulShape([3, 4], [4, 2], flags(false, false))).toEqual([3, 2]);
  expect(matmulShape([7, 4, 3], [7, 2, 4], flags(true, true))).toEqual([7, 3, 2]);
  const refused = [
    [[4], [4]],
    [
      [3, 4],
      [1, 4, 2],
    ],
    [
      [3, 4],
      [3, 2],
    ],
    [
      [5, 3, 4],
      [6, 4, 2],
    ],
  ] as const;
  for (const [left, right] of refused) {
    expect(() => matmulShape(left, right, flags(false, false))).toThrow(/^matmul: the shapes/);
  }
});

test("normalAxes: ascending, from the end where negative; others are refused", () => {
  expect(normalAxes("sum", [2, 3, 4], [2, -3])).toEqual([0, 2]);
  expect(normalAxes("sum", [2, 3, 4], [])).toEqual([]);
  for (const axes of [[3], [-4], [0.5], [0, 0], [1, -2]]) {
    expect(() => normalAxes("sum", [2, 3, 4], axes)).toThrow(
      `sum: the axes [${axes.join()}] do not fit the shape [2,3,4]`,
    );
  }
});

test("reducedShape: drops the axes, or keeps them with a size of 1", () => {
  expect(reducedShape([2, 3, 4], [0, 2], false)).toEqual([3]);
  expect(reducedShape([2, 3, 4], [0, 2], true)).toEqual([1, 3, 1]);
});

test("reshapedShape: one size may be what is left; the number of elements stays", () => {
  expect(reshapedShape([2, 6], [3, 4])).toEqual([3, 4]);
  expect(reshapedShape([2, 6], [-1, 4])).toEqual([3, 4]);
  expect(reshapedShape([], [1])).toEqual([1]);
  for (const target of [[5], [-1, 5], [-1, -1, 12], [-1, -1]]) {
    expect(() => reshapedShape([2, 6], target)).toThrow("has another number of elements");
  }
});

test("permutedShape: names every axis once", () => {
  expect(permutedShape([2, 3, 4], [2, 0, 1])).toEqual([4, 2, 3]);
  expect(() => permutedShape([2, 3, 4], [1, 0])).toThrow("does not name every axis");
  expect(() => permutedShape([2, 3], [0, 0])).toThrow("do not fit");
});

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

import { seededRandom } from "@heddle/base/random";
import { expect, test } from "vitest";
import { initialParameters, normal } from "./initialize.ts";

const drawn = (shape: readonly number[], gain: number) => {
  const init = { kind: "orthogonal", gain } as const;
  const { w = new Float32Array() } = initialParameters(
    [{ name: "w", shape, init }],
    seededRandom(5),
  );
  return (row: number, column: number) => w[row * (shape[1] ?? 0) + column] ?? Number.NaN;
};

test("normal: is Box and Muller's formula of two random numbers", () => {
  const of = (...numbers: number[]) => normal(() => numbers.shift() ?? Number.NaN);
  expect(of(0.75, 0)).toBeCloseTo(Math.sqrt(2 * Math.log(4)), 12);
  expect(of(0.75, 0.5)).toBeCloseTo(-Math.sqrt(2 * Math.log(4)), 12);
  expect(of(0.75, 0.25)).toBeCloseTo(0, 12);
  expect(Math.abs(of(0, 0.1))).toBe(0);
});

test.each([
  [3, 5],
  [5, 3],
  [4, 4],
])(
  "orthogonal: the fewer of %i rows and %i columns are orthogonal, by the gain",
  (rows, columns) => {
    const gain = 1.5;
    const at = drawn([rows, columns], gain);
    const few = Math.min(rows, columns);
    const element = (which: number, i: number) => (rows <= columns ? at(which, i) : at(i, which));
    for (let one = 0; one < few; one++) {
      for (let other = 0; other < few; other++) {
        let product = 0;
        for (let i = 0; i < Math.max(rows, columns); i++)
          product += element(one, i) * element(other, i);
        expect(product).toBeCloseTo(one === other ? gain ** 2 : 0, 5);
      }
      for (let i = 0; i < Math.max(rows, columns); i++) expect(element(one, i)).not.toBe(0);
    }
  },
);

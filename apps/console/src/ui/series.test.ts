import { expect, test } from "vitest";
import { Series } from "./series.ts";

test("series: of a million points few are drawn, with every peak and both ends", () => {
  const peaks = new Map([
    [123_457, 9],
    [700_001, -3],
  ]);
  const series = new Series();
  for (let x = 0; x < 1_000_000; x++) series.add({ x, y: peaks.get(x) ?? Math.sin(x) });
  const { points } = series;
  expect(points.length).toBeLessThanOrEqual(1_281);
  expect(points.length).toBeGreaterThan(600);
  expect(points[0]?.x).toBeLessThan(3_200);
  expect(series.first).toEqual({ x: 0, y: 0 });
  expect(points.at(-1)?.x).toBe(999_999);
  for (const [x, y] of peaks) expect(points).toContainEqual({ x, y });
  const places = points.map(({ x }) => x);
  expect(places).toEqual(places.toSorted((a, b) => a - b));
});

test("series: a short one is whole, and steps that are done again replace the earlier", () => {
  const points = [1, 2, 3].map((x) => ({ x, y: x * x }));
  const series = Series.of(points);
  expect(series.points).toEqual(points);
  series.add({ x: 2, y: 5 });
  expect(series.points).toEqual([points[0], { x: 2, y: 5 }]);
  series.add({ x: 0, y: 7 });
  expect([series.first, ...series.points]).toEqual([
    { x: 0, y: 7 },
    { x: 0, y: 7 },
  ]);
  expect(Series.of([]).points).toEqual([]);
});

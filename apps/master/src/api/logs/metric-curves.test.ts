import type { MetricRecord } from "@heddle/contracts/metrics/metric-record";
import { expect, test } from "vitest";
import { type CurveQuery, MetricCurves } from "./metric-curves.ts";

const first = { attempt: 1, incarnation: 0 };
const second = { attempt: 2, incarnation: 0 };
const query: CurveQuery = { points: 500 };

function record(from: number, to: number, value: number, name = "loss"): MetricRecord {
  const summary = { count: to + 1 - from, min: value - 1, max: value + 1, mean: value };
  const values = { [name]: to > from ? summary : { ...summary, min: value, max: value } };
  return { first: from, last: to, values, total: 0, offset: 0 };
}

test("curves: of a million values a few points stay, with every peak, evenly spread", () => {
  const curves = new MetricCurves(query);
  // As they are recorded: the later, the wider.
  for (let from = 1; from <= 1_000_000; ) {
    const width = 2 ** Math.max(0, Math.floor(Math.log2(from / 8_192)));
    const to = Math.min(1_000_000, from + width - 1);
    const isPeak = from <= 654_321 && to >= 654_321;
    curves.add(first, record(from, to, isPeak ? 99 : 0), from);
    from = to + 1;
  }
  const [{ points } = { points: [] }] = curves.answer.series;
  expect(points.length).toBeLessThanOrEqual(500);
  expect(points.length).toBeGreaterThan(240);
  expect(points.reduce((sum, { count }) => sum + count, 0)).toBe(1_000_000);
  expect(Math.max(...points.map(({ max }) => max))).toBe(100);
  expect(points.at(-1)?.step).toBe(1_000_000);
  const gaps = points.slice(1).map(({ step }, i) => step - (points[i]?.step ?? 0));
  expect(Math.max(...gaps)).toBeLessThan(5_000);
});

test("curves: a later attempt replaces what it does again, whichever is read first", () => {
  const records = [
    ...[1, 2, 3, 4].map((step) => [first, step, 1] as const),
    ...[3, 4, 5].map((step) => [second, step, 2] as const),
    [{ attempt: 2, incarnation: 1 }, 5, 3] as const,
  ];
  // Clocks of two nodes differ: a later attempt may come first.
  const byRun = [records.slice(-1), records.slice(4, 7), records.slice(0, 4)].flat();
  for (const order of [records, byRun]) {
    const curves = new MetricCurves(query);
    for (const [run, step, value] of order) curves.add(run, record(step, step, value), step);
    const [{ points } = { points: [] }] = curves.answer.series;
    expect(points.map(({ step, mean, count }) => [step, mean, count])).toEqual([
      [1, 1, 1],
      [2, 1, 1],
      [3, 2, 1],
      [4, 2, 1],
      [5, 3, 1],
    ]);
  }
});

test("curves: a range of steps and some names, with all names beside them", () => {
  const curves = new MetricCurves({ names: ["b"], from: 3, to: 5, points: 500 });
  for (let step = 1; step <= 9; step++) {
    for (const name of ["a", "b"]) curves.add(first, record(step, step, step, name), 0);
  }
  const { names, series } = curves.answer;
  expect(names).toEqual(["a", "b"]);
  expect(series.map(({ name, points }) => [name, points.map(({ step }) => step)])).toEqual([
    ["b", [3, 4, 5]],
  ]);
});

test("curves: names and points have limits, and extremes of steps do no harm", () => {
  const curves = new MetricCurves({ points: 2_000 });
  const far = [0, 1, -1e308, 1e308, 5e-324, 2 ** 53];
  for (let i = 0; i < 400; i++) {
    for (const step of far) curves.add(first, record(step, step, i, `n${i}`), 0);
    for (let step = 0; step < 300; step++) curves.add(first, record(step, step, i, `n${i}`), 0);
  }
  const { names, series } = curves.answer;
  expect([names.length, series.length]).toEqual([256, 64]);
  const points = series.flatMap((each) => each.points);
  expect(points.length).toBeLessThanOrEqual(8_000);
  const few = new MetricCurves({ points: 2 });
  for (const step of far) few.add(first, record(step, step, 1), 0);
  expect(few.answer.series[0]?.points.length).toBeLessThanOrEqual(2);
});

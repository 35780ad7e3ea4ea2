// holds: metrics-history

import { readMetricRecord } from "@heddle/contracts/metrics/metric-record";
import { expect, test } from "vitest";
import { MetricHistory } from "./metric-history.ts";

/** A store in memory, whose disk can be full. */
class Kept {
  text = "";
  isFull = false;

  readonly record = async (text: string) => {
    if (this.isFull) throw new Error("ENOSPC");
    this.text += text;
  };

  readonly recordedTail = async (maxBytes: number) => this.text.slice(-maxBytes);

  get records() {
    return this.text.split("\n").flatMap((line) => readMetricRecord(line) ?? []);
  }
}

const never = (error: unknown) => {
  throw error;
};

function lines(from: number, to: number) {
  return Array.from({ length: to - from }, (_, i) => ({ step: from + i, loss: 1 / (from + i) }));
}

test("metrics: a million values are some thousands of records, each value in one", async () => {
  const kept = new Kept();
  const history = new MetricHistory(kept, never);
  for (let from = 1; from <= 1_000_000; from += 1_000) {
    await history.add(lines(from, from + 1_000), from, from + 1_000 > 1_000_000);
  }
  const { records, text } = kept;
  expect(records.length).toBeLessThan(80_000);
  expect(text.length).toBeLessThan(10 * 2 ** 20);
  let next = 1;
  const isNext = ({ first, last, values: { loss } }: (typeof records)[number]) => {
    const isSame = first === next && loss?.max === 1 / first && loss.min === 1 / last;
    next = last + 1;
    return isSame && loss.count === next - first;
  };
  expect(records.every(isNext)).toBe(true);
  expect(next).toBe(1_000_001);
  // Exact at first; later a small share of all.
  expect(records[10_000]).toMatchObject({ first: 10_001, last: 10_001 });
  const widest = Math.max(...records.map(({ first, last }) => last + 1 - first));
  expect(widest).toBeLessThanOrEqual(1_000_000 / 8_192);
});

test("metrics: a later process continues where the records end", async () => {
  const kept = new Kept();
  const first = new MetricHistory(kept, never);
  expect(await first.resume()).toBe(0);
  await first.add(lines(1, 20_001), 777, false);
  const next = new MetricHistory(kept, never);
  expect(await next.resume()).toBe(777);
  await next.add(lines(20_001, 40_001), 888, true);
  const counts = kept.records.map(({ values }) => values["loss"]?.count ?? 0);
  // The record that was open at the first's end is lost: a line of 20,000.
  expect(counts.reduce((sum, count) => sum + count)).toBe(39_999);
  expect(kept.records.at(-1)).toMatchObject({ last: 40_000, total: 39_999, offset: 888 });
  expect(counts.slice(-2)).toEqual([4, 4]);
});

test("metrics: lines without a step are counted, or belong to the one before", async () => {
  const kept = new Kept();
  const history = new MetricHistory(kept, never);
  await history.add([{ loss: 3 }, { message: "hi" }, { loss: 2, reward: null }], 1, false);
  await history.add([{ step: 10, total_steps: 20, loss: 1 }, { accuracy: 0.5 }], 2, true);
  const seen = kept.records.map(({ first, last, values }) => [first, last, Object.keys(values)]);
  expect(seen).toEqual([
    [1, 1, ["loss"]],
    [2, 2, ["loss"]],
    [10, 10, ["loss"]],
    [10, 10, ["accuracy"]],
  ]);
});

test("metrics: names have a limit, and any of them is only a name", async () => {
  const kept = new Kept();
  const history = new MetricHistory(kept, never);
  const line = JSON.parse('{"__proto__": 1, "toString": 2, "a\\n[1]": 3}') as Record<
    string,
    number
  >;
  await history.add([line], 1, false);
  expect(
    Object.entries(kept.records[0]?.values ?? {}).map(([name, { max }]) => [name, max]),
  ).toEqual([
    ["__proto__", 1],
    ["toString", 2],
    ["a\n[1]", 3],
  ]);
  for (let i = 0; i < 200; i++) await history.add([{ [`n${i}`]: i }], 1, false);
  const names = new Set(kept.records.flatMap(({ values }) => Object.keys(values)));
  expect(names.size).toBe(64);
});

test("metrics: a full disk loses records and harms nothing", async () => {
  const kept = new Kept();
  const faults: unknown[] = [];
  const history = new MetricHistory(kept, (error) => faults.push(error));
  kept.isFull = true;
  for (let step = 1; step < 9; step++) await history.add([{ step, loss: 1 }], step, false);
  // What was written of the first may be a part of a line.
  kept.text = "[1,1,";
  kept.isFull = false;
  await history.add([{ step: 9, loss: 1 }], 9, false);
  expect(kept.records.map(({ first }) => first)).toEqual([9]);
  expect(faults).toHaveLength(1);
});

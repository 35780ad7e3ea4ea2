import { expect, test } from "vitest";
import type { BenchResult } from "../../bench/support/result.ts";
import { barSummary, parseResult, resultTables } from "./benchmark-tables.ts";

const RESULT: BenchResult = {
  benchmark: "gateway",
  takenAt: "2026-11-23T10:00:00.000Z",
  command: "npm run bench:gateway -- --rounds 3",
  machine: { cpu: "A CPU ", cores: 2, memoryGiB: 24, node: "v24.1.0" },
  load: "load average 0.1 at the start",
  commit: "abc1234",
  tables: [
    {
      title: "Whole answers, requests/s",
      columns: ["at once", "ours", "peer|s"],
      rows: [
        ["10", 10_205.4, 0.07],
        ["64", 9_815, "n/a"],
      ],
    },
  ],
  bars: [
    { bar: "ratio >= 4x", measured: "4.9x", pass: true },
    { bar: "a_b <= 0.3x", measured: "0.4x", pass: false },
  ],
};
const parse = (result: object) => parseResult("bench/results/gateway.json", JSON.stringify(result));

test("result: a well-formed one is read unchanged", () => {
  expect(parse(RESULT)).toEqual(RESULT);
});

test.each([
  ["no load", { load: undefined }, /gateway.json: .*load/s],
  ["a day in words", { takenAt: "yesterday" }, /takenAt/],
  [
    "a row without all cells",
    { tables: [{ title: "t", columns: ["a", "b"], rows: [["1"]] }] },
    /cell/,
  ],
  ["a missing figure", { tables: [{ title: "t", columns: ["a"], rows: [[null]] }] }, /tables/],
  ["an unknown field", { author: "x" }, /author/],
  ["no figures", { tables: [], bars: [] }, /a result has figures/],
])("result: %s is refused", (_, change, reason) => {
  expect(() => parse({ ...RESULT, ...change })).toThrow(reason);
});

test("tables: origin, figures with separators, escaped text and verdicts", () => {
  expect(resultTables(RESULT)).toBe(
    [
      "Taken 2026-11-23 at abc1234, load average 0.1 at the start; 2 cores (A CPU), 24 GiB, Node v24.1.0:",
      "`npm run bench:gateway -- --rounds 3`\n",
      "Whole answers, requests/s:\n",
      "| at once |   ours | peer\\|s |",
      "| ------- | -----: | ------: |",
      "| 10      | 10,205 |  0.0700 |",
      "| 64      |  9,815 |     n/a |\n",
      "| bar          | measured | verdict |",
      "| ------------ | -------: | ------: |",
      "| ratio >= 4x  |     4.9x |     met |",
      "| a\\_b <= 0.3x |     0.4x |  MISSED |",
    ].join("\n"),
  );
  expect(resultTables({ ...RESULT, transcribed: true })).toMatch(
    /^Transcribed from the page of 2026/,
  );
});

test("bars: the summary counts all results and names each miss", () => {
  const met = { ...RESULT, bars: RESULT.bars.slice(0, 1) };
  expect(barSummary(new Map([["a", met]]))).toBe("1 of 1 bars are met.");
  expect(
    barSummary(
      new Map([
        ["a", met],
        ["b", RESULT],
      ]),
    ),
  ).toBe("2 of 3 bars are met. Missed:\n\n- b: a\\_b <= 0.3x, measured 0.4x");
});

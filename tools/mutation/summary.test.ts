// holds: test-mutations-tool

import { expect, test } from "vitest";
import { type PackageSummary, passes, summaryTable } from "./summary.ts";

const missed = (covered: boolean) => ({
  file: "libs/a/src/x.ts",
  line: 1,
  code: "a",
  replacement: "b",
  covered,
});
const explanation = { file: "libs/a/src/x.ts", code: "a", replacement: "b", reason: "c" };
const summary = (
  percent: number,
  tried: number,
  stale: PackageSummary["score"]["stale"] = [],
): PackageSummary => ({
  name: "libs/a",
  score: {
    detected: 120,
    timedOut: 3,
    explained: 2,
    stale,
    percent,
    missed: [missed(true), missed(true), missed(false)],
  },
  files: 2,
  tried,
});

test("summary: one line per package, with its files; no score without a result", () => {
  expect(summaryTable([summary(97.56, 2), { ...summary(0, 0), name: "libs/longer" }])).toBe(
    [
      "package      score   detected  by time  survived  not covered  explained  files",
      "libs/a       97.6 %  120       3        2         1            2          2 of 2",
      "libs/longer  -       120       3        2         1            2          0 of 2",
    ].join("\n"),
  );
});

test("summary: a package is judged when all its files have a result", () => {
  expect(passes([summary(85, 2), summary(84.9, 1), summary(0, 0)])).toBe(true);
  expect(passes([summary(85, 2), summary(84.9, 2)])).toBe(false);
  expect(passes([summary(99, 2, [explanation])])).toBe(false);
  expect(passes([summary(99, 1, [explanation])])).toBe(true);
});

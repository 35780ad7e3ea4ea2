// holds: test-mutations-tool

import { expect, test } from "vitest";
import { scoreOf, type TriedMutant } from "./score.ts";

const FILE = "libs/base/src/a.ts";
const TEXT = "const a = 1;\nif (a >\n    2) {\n  b();\n}\n";

function mutant(status: string, replacement = "true"): TriedMutant {
  const location = { start: { line: 2, column: 5 }, end: { line: 3, column: 6 } };
  return { fileName: FILE, status, replacement, location };
}

const statuses = (...given: string[]) => given.map((status) => mutant(status));
const score = (mutants: readonly TriedMutant[], explained = "nothing") =>
  scoreOf(
    mutants,
    [{ file: FILE, code: "a > 2", replacement: explained, reason: "a is 1" }],
    () => TEXT,
  );

test("score: killed and timed-out mutants are detected, ignored ones count nowhere", () => {
  const { detected, timedOut, percent, missed } = score(
    statuses("Killed", "Timeout", "Killed", "Survived", "NoCoverage", "Ignored"),
  );
  expect([detected, timedOut, percent]).toEqual([3, 1, 60]);
  expect(missed).toEqual([
    { file: FILE, line: 2, code: "a > 2", replacement: "true", covered: true },
    { file: FILE, line: 2, code: "a > 2", replacement: "true", covered: false },
  ]);
});

test("score: of a sample, mutants that no test covers weigh as much as survivors", () => {
  // The sample is drawn of all mutants, before it is known which of them are covered.
  const sample = statuses("Killed", "Survived", "NoCoverage", "NoCoverage");
  expect(score([...sample, ...Array(6).fill(mutant("CompileError"))]).percent).toBe(25);
});

test("score: an explained survivor is not missed", () => {
  const result = score([mutant("Survived", "false"), mutant("Killed")], "false");
  expect(result).toMatchObject({ explained: 1, missed: [], stale: [], percent: 100 });
});

test("score: an explanation that fits no survivor is stale", () => {
  expect(score(statuses("Killed"), "false").stale).toHaveLength(1);
  expect(scoreOf([], score(statuses("Killed"), "false").stale, () => TEXT).stale).toEqual([]);
});

test("score: without mutants it is 100 %", () => {
  expect(score([]).percent).toBe(100);
});

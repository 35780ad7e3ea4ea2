// holds: test-mutations-tool

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { inputsDigest, MutationResults, mutatedFiles } from "./results.ts";
import type { TriedMutant } from "./score.ts";

let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "heddle-results-"));
});
afterEach(() => rmSync(root, { recursive: true }));

const TARGET = { name: "libs/a", tests: ["libs/a/src/**/*.test.ts", "libs/b/src/b.test.ts"] };
const put = (path: string, text: string) => {
  mkdirSync(dirname(join(root, path)), { recursive: true });
  writeFileSync(join(root, path), text);
};
const location = { start: { line: 1, column: 1 }, end: { line: 1, column: 2 } };
const mutant = (status: string): TriedMutant => ({
  fileName: "libs/a/src/x.ts",
  status,
  replacement: "true",
  location,
});

test("mutated files: sources alone, without tests, test support and builds", () => {
  for (const path of ["src/x.ts", "src/y/z.ts", "src/x.test.ts", "src/testing/t.ts", "dist/x.ts"]) {
    put(`libs/a/${path}`, "");
  }
  put("libs/b/src/x.ts", "");
  expect(mutatedFiles(root, TARGET)).toEqual(["libs/a/src/x.ts", "libs/a/src/y/z.ts"]);
});

test("digest: changes with sources, test data, tests and the tool, and not with builds", () => {
  put("libs/a/src/x.ts", "1");
  const digests = new Set([inputsDigest(root, TARGET)]);
  const paths = ["libs/a/src/x.ts", "libs/a/src/testing/t.json", "libs/b/src/b.test.ts"];
  for (const path of [...paths, "tools/mutation/setup.ts", "package-lock.json"]) {
    put(path, "2");
    digests.add(inputsDigest(root, TARGET));
  }
  expect(digests.size).toBe(6);
  put("libs/a/dist/x.js", "3");
  put("libs/b/src/b.ts", "3");
  digests.add(inputsDigest(root, TARGET));
  expect(digests.size).toBe(6);
  expect(digests).not.toContain(inputsDigest(root, { ...TARGET, env: { RUNS: "3" } }));
});

test("results: each file's result is read with the inputs that it was tried with", () => {
  const results = new MutationResults(join(root, "cache"));
  results.write("libs/a/src/x.ts", "one", [mutant("Killed"), mutant("Survived")]);
  const later = new MutationResults(join(root, "cache"));
  expect(later.read("libs/a/src/x.ts", "one")).toEqual([mutant("Killed"), mutant("Survived")]);
  expect(later.read("libs/a/src/x.ts", "two")).toBeUndefined();
  expect(later.read("libs/a/src/y.ts", "one")).toBeUndefined();
});

test("results: a run continues with files that were never tried, then changed ones", () => {
  const results = new MutationResults(join(root, "cache"));
  results.write("changed.ts", "one", []);
  results.write("done.ts", "two", []);
  const files = ["changed.ts", "done.ts", "new.ts"];
  expect(results.due(files, "two", false)).toEqual(["new.ts", "changed.ts"]);
  expect(results.due(files, "two", true)).toEqual(["new.ts", "changed.ts", "done.ts"]);
});

test("results: a damaged file counts as not tried", () => {
  const results = new MutationResults(join(root, "cache"));
  results.write("x.ts", "one", []);
  put("cache/x.ts.result.json", '{"digest":"one","mut');
  expect(results.read("x.ts", "one")).toBeUndefined();
  expect(results.due(["x.ts"], "one", false)).toEqual(["x.ts"]);
});

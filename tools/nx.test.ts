import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, it, test } from "vitest";
import LONG_TESTS from "./long-tests.json" with { type: "json" };
import { TEST_ENVIRONMENT } from "./nx/plugin.mjs";
import { readReport, vitestArguments } from "./nx/reports.mjs";
import { repositoryFiles } from "./tidy/source-file.ts";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const folder = mkdtempSync(join(tmpdir(), "heddle-nx-"));

afterAll(() => rmSync(folder, { recursive: true }));

/** Tests and what they share; not programs whose variables a test sets. */
function isTestCode(path: string): boolean {
  if (/(?:clock-skew|scripted-main)\.ts$/.test(path)) return false;
  return /\.test\.ts$|^apps\/[^/]+\/test\//.test(path);
}

test("nx: a variable that selects what tests run is part of the cache's key", () => {
  const tests = repositoryFiles(root).filter((path) => isTestCode(path));
  const read = tests
    .map((path) => readFileSync(join(root, path), "utf8"))
    .flatMap((text) => [...text.matchAll(/process\.env(?:\["|\.)(HEDDLE_[A-Z_]+)(?!\w|"\] = )/g)])
    .map(([, name]) => name);
  expect(read).toContain("HEDDLE_PROPERTY_RUNS");
  expect(read.filter((name) => !TEST_ENVIRONMENT.includes(name ?? ""))).toEqual([]);
});

test("npm test: leaves out the long files alone, and a whole run none", () => {
  const filesOf = (tests: string) => {
    const program = join(root, "node_modules/vitest/vitest.mjs");
    const env = { ...process.env, HEDDLE_TESTS: tests };
    const run = spawnSync(process.execPath, [program, "list", "--filesOnly"], { cwd: root, env });
    return new Set(`${run.stdout}`.match(/\S+\.test\.ts(?=\n)/g));
  };
  const short = filesOf("short");
  const leftOut = [...filesOf("all")].filter((file) => !short.has(file));
  expect(leftOut.sort()).toEqual([...LONG_TESTS].sort());
});

describe("npm test: files that would begin too late are left out and named", () => {
  const long = "libs/engines/src/llama/parent/tool-forms.test.ts";
  const short = "tools/structure.test.ts";
  const seconds = Date.now() / 1_000;

  it.each([
    ["after the time, long ones", seconds, [long]],
    ["long after it, all", seconds - 300, [long, short]],
  ])("%s", (_, until, late) => {
    expect(LONG_TESTS).toContain(long);
    const report = join(folder, "late.json");
    const args = ["node_modules/vitest/vitest.mjs", ...vitestArguments(report), long, short];
    const env = { ...process.env, HEDDLE_TESTS: "all", HEDDLE_TESTS_UNTIL: String(until) };
    const run = spawnSync(process.execPath, args, { cwd: root, env, encoding: "utf8" });
    const named = run.stdout.matchAll(/^left out, since no time is left: (.*)$/gm);
    expect(Array.from(named, ([, path]) => path).sort()).toEqual(late);
    const ran = readReport(report).filter(({ assertionResults }) =>
      assertionResults.some(({ status }) => status === "passed"),
    );
    const inTime = [long, short].filter((path) => !late.includes(path));
    expect(ran.map(({ name }) => relative(root, name))).toEqual(inTime);
    expect(run.status).toBe(0);
  });
});

import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, it, test } from "vitest";
import LONG_TESTS from "./long-tests.json" with { type: "json" };
import { TEST_ENVIRONMENT } from "./nx/plugin.mjs";
import { readReport, reportOf, vitestArguments } from "./nx/reports.mjs";
import { repositoryFiles } from "./tidy/source-file.ts";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const folder = mkdtempSync(join(tmpdir(), "heddle-nx-"));
const added = join(root, "libs/kernels/nx-sample.txt");

afterAll(() => {
  rmSync(added, { force: true });
  rmSync(folder, { recursive: true });
});

function nx(...args: string[]): string {
  const program = join(root, "node_modules/nx/dist/bin/nx.js");
  const inherited = Object.entries(process.env).filter(([name]) => !/^(NX_|VITEST)/.test(name));
  const env = {
    ...Object.fromEntries(inherited),
    NX_CACHE_DIRECTORY: join(folder, "cache"),
    NX_WORKSPACE_DATA_DIRECTORY: join(folder, "data"),
  };
  const { stdout, stderr, status } = spawnSync(process.execPath, [program, ...args], {
    cwd: root,
    encoding: "utf8",
    env,
  });
  expect(status, `${stdout}${stderr}`).toBe(0);
  return stdout;
}

const passedTests = () => {
  const { testResults } = JSON.parse(readFileSync(join(root, reportOf("libs/kernels")), "utf8"));
  return testResults[0].assertionResults.length;
};

test("nx: tests of an unchanged package are not run again", { timeout: 240_000 }, () => {
  const run = () => nx("run-many", "-t", "test", "-p", "@heddle/kernels", "--outputStyle=stream");
  expect(run()).not.toContain("from the cache");
  const passed = passedTests();
  rmSync(join(root, reportOf("libs/kernels")));
  expect(run()).toContain("from the cache");
  expect(passedTests()).toBe(passed);
  writeFileSync(added, "A file that is no part of the package.\n");
  expect(run()).not.toContain("from the cache");
});

test("nx: a variable that selects what tests run is part of the cache's key", () => {
  const tests = repositoryFiles(root).filter((path) => path.endsWith(".test.ts"));
  const read = tests
    .map((path) => readFileSync(join(root, path), "utf8"))
    .flatMap((text) => [...text.matchAll(/process\.env(?:\["|\.)(HEDDLE_[A-Z_]+)/g)])
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

test("nx: the graph has the layers of the packages", { timeout: 120_000 }, () => {
  const file = join(folder, "graph.json");
  nx("graph", `--file=${file}`);
  const { dependencies } = JSON.parse(readFileSync(file, "utf8")).graph;
  const of = (name: string): string[] =>
    dependencies[`@heddle/${name}`]
      .map(({ target }: { target: string }) => target)
      .filter((target: string) => target.startsWith("@heddle/"));
  expect(of("base")).toEqual([]);
  expect(of("raft")).toEqual(["@heddle/base"]);
  expect(of("master")).toContain("@heddle/consensus");
});

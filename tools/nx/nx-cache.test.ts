import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, expect, test } from "vitest";
import { reportOf } from "./reports.mjs";

const root = fileURLToPath(new URL("../..", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "heddle-nx-cache-"));
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

test("nx: tests of an unchanged package are not run again", () => {
  const run = () => nx("run-many", "-t", "test", "-p", "@heddle/kernels", "--outputStyle=stream");
  expect(run()).not.toContain("from the cache");
  const passed = passedTests();
  rmSync(join(root, reportOf("libs/kernels")));
  expect(run()).toContain("from the cache");
  expect(passedTests()).toBe(passed);
  writeFileSync(added, "A file that is no part of the package.\n");
  expect(run()).not.toContain("from the cache");
});

test("nx: the graph has the layers of the packages", () => {
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

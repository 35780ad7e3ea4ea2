import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, sep } from "node:path";
import { compile } from "./build.mjs";
import { readReport, reportOf, vitestArguments } from "./reports.mjs";
import { run } from "./run.mjs";

/**
 * Tests the packages of all tasks in one vitest, which orders their files over all packages. Each
 * package gets a report of its own, which Nx keeps with the result.
 */
export async function testBatch(taskGraph, _inputs, _overrides, { root }) {
  const tasks = Object.values(taskGraph.tasks);
  const folders = tasks.map(({ projectRoot }) => projectRoot);
  const passed = await testFolders(root, folders);
  return Object.fromEntries(
    tasks.map(({ id, projectRoot }) => [
      id,
      { success: passed.has(projectRoot), terminalOutput: "" },
    ]),
  );
}

export async function test(_options, { root, projectName, projectsConfigurations }) {
  const folder = projectsConfigurations.projects[projectName].root;
  return { success: (await testFolders(root, [folder])).has(folder) };
}

/** Writes the report of each folder; resolves to the folders whose tests passed. */
async function testFolders(root, folders) {
  // Tests start programs of other packages, which Nx does not build for them.
  if (!(await compile(root))) return new Set();
  const scratch = mkdtempSync(join(tmpdir(), "heddle-test-"));
  const reportFile = join(scratch, "report.json");
  const status = await run(root, join(root, "node_modules/vitest/vitest.mjs"), [
    ...vitestArguments(reportFile),
    "--passWithNoTests",
    // A filter is a part of a path: the slash keeps `apps/worker` from `apps/worker-x`.
    ...folders.map((folder) => `${folder}/`),
  ]);
  const results = readReport(reportFile);
  rmSync(scratch, { recursive: true, force: true });
  const reports = folders.map((folder) => {
    const prefix = join(root, folder) + sep;
    const testResults = results.filter(({ name }) => name.startsWith(prefix));
    return { folder, testResults, hasFailed: testResults.some((file) => file.status === "failed") };
  });
  for (const { folder, testResults } of reports) {
    mkdirSync(dirname(join(root, reportOf(folder))), { recursive: true });
    writeFileSync(join(root, reportOf(folder)), JSON.stringify({ testResults }));
  }
  const passed = reports.filter(({ hasFailed }) => !hasFailed);
  // Vitest also fails where an error belongs to no test: then no folder has passed.
  const isLost = status !== 0 && passed.length === reports.length;
  return new Set(isLost ? [] : passed.map(({ folder }) => folder));
}

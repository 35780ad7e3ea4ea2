// `npm test`: sets up what a fresh clone lacks, runs every test, and ends with one line: `N passed, N
// failed`. Nx keeps the results of packages that have not changed (NX_SKIP_NX_CACHE=true runs them
// all), and HEDDLE_TESTS=all adds the long tests. Arguments go to vitest, e.g. `npm test -- libs/raft`.
// Of those, files that would begin after HEDDLE_TESTS_UNTIL (seconds since the epoch) are left out; the
// rest is so 4 minutes later.
// With HEDDLE_TEST_RETRIES a failed test is retried, and named at the end if it then passes; so are those
// that fail.
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { constants, tmpdir } from "node:os";
import { join } from "node:path";
import LONG_TESTS from "./long-tests.json" with { type: "json" };
import { readReport, reportOf, vitestArguments } from "./nx/reports.mjs";
import { ROOT, setUp } from "./setup.mjs";
import { summarize } from "./summarize-tests.mjs";

const LEFT_OUT = `${LONG_TESTS.length} long test files were left out: HEDDLE_TESTS=all npm test runs them too\n`;
const { node, env } = setUp();
const filters = process.argv.slice(2);
env.HEDDLE_TESTS ??= filters.length > 0 ? "all" : "short";
const scratch = mkdtempSync(join(tmpdir(), "heddle-test-"));
const reportFile = join(scratch, "report.json");
const [program, ...args] =
  filters.length > 0
    ? ["vitest/vitest.mjs", ...vitestArguments(reportFile), ...filters]
    : ["nx/dist/bin/nx.js", "run-many", "-t", "test", "--outputStyle=stream"];
const child = spawn(node, [join(ROOT, "node_modules", program), ...args], {
  cwd: ROOT,
  stdio: "inherit",
  env,
});
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
  process.on(signal, () => child.kill(signal));
}
child.on("exit", (code, signal) => {
  const status = code ?? 128 + (constants.signals[signal] ?? 0);
  const files = filters.length > 0 ? [reportFile] : packageReports();
  const { line, unsteady, failures, ok } = summarize(files.flatMap(readReport), status);
  rmSync(scratch, { recursive: true, force: true });
  for (const test of unsteady) process.stdout.write(`passed on a second try only: ${test}\n`);
  for (const test of failures) process.stdout.write(`failed: ${test}\n`);
  if (env.HEDDLE_TESTS === "short") process.stdout.write(LEFT_OUT);
  process.stdout.write(`${line}\n`);
  process.exitCode = ok ? 0 : status || 1;
});

function packageReports() {
  const packages = ["apps", "libs"].flatMap((kind) =>
    readdirSync(join(ROOT, kind)).map((name) => `${kind}/${name}`),
  );
  return [...packages, "bench", "tools"]
    .map((folder) => join(ROOT, reportOf(folder)))
    .filter(existsSync);
}

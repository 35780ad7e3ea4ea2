// `npm test`: sets up what a fresh clone lacks, runs every test (arguments go to vitest, e.g.
// `npm test -- libs/raft`), and ends with one line: `N passed, N failed`. With HEDDLE_TEST_RETRIES a
// failed test is tried so often again, and named at the end if it then passes.
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { constants, tmpdir } from "node:os";
import { join } from "node:path";
import { ROOT, setUp } from "./setup.mjs";
import { summarize } from "./summarize-tests.mjs";

const { node, env } = setUp();
const scratch = mkdtempSync(join(tmpdir(), "heddle-test-"));
const reportFile = join(scratch, "report.json");
const child = spawn(
  node,
  [
    join(ROOT, "node_modules/vitest/vitest.mjs"),
    "run",
    "--reporter=default",
    "--reporter=json",
    `--outputFile.json=${reportFile}`,
    `--retry=${process.env.HEDDLE_TEST_RETRIES ?? 0}`,
    ...process.argv.slice(2),
  ],
  { cwd: ROOT, stdio: "inherit", env },
);
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
  process.on(signal, () => child.kill(signal));
}
child.on("exit", (code, signal) => {
  const status = code ?? 128 + (constants.signals[signal] ?? 0);
  const { line, unsteady, ok } = summarize(readReport(), status);
  rmSync(scratch, { recursive: true, force: true });
  for (const test of unsteady) process.stdout.write(`passed on a second try only: ${test}\n`);
  process.stdout.write(`${line}\n`);
  process.exitCode = ok ? 0 : status || 1;
});

function readReport() {
  try {
    return JSON.parse(readFileSync(reportFile, "utf8"));
  } catch {
    return undefined; // vitest ended before it wrote one; the summary counts that as a failure.
  }
}

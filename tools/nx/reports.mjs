import { readFileSync } from "node:fs";

/** Results of tests, from the repository's root: what Nx keeps of a run. */
const REPORTS = "node_modules/.cache/heddle-tests";

/** Where the results of the package in `folder` are. */
export function reportOf(folder) {
  return `${REPORTS}/${folder.replaceAll("/", "-")}.json`;
}

/** A run of vitest that writes its results to a file too. */
export function vitestArguments(reportFile) {
  return [
    "run",
    "--reporter=default",
    "--reporter=json",
    `--outputFile.json=${reportFile}`,
    `--retry=${process.env.HEDDLE_TEST_RETRIES ?? 0}`,
  ];
}

/** The results of a report, a test file each; of one that vitest did not finish, none. */
export function readReport(file) {
  try {
    return JSON.parse(readFileSync(file, "utf8")).testResults;
  } catch {
    return [];
  }
}

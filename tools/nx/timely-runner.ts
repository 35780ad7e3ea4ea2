import { relative } from "node:path";
import { type RunnerTestFile, TestRunner } from "vitest";
import LONG_TESTS from "../long-tests.json" with { type: "json" };

/** This much later, the other files are left out too: on a machine that is slower than any known. */
const GRACE_MS = 4 * 60_000;

/** Leaves out the long test files that would begin after HEDDLE_TESTS_UNTIL, and names them. */
export default class TimelyRunner extends TestRunner {
  onCollected(files: RunnerTestFile[]): void {
    const untilMs = Number(process.env["HEDDLE_TESTS_UNTIL"] ?? Infinity) * 1_000;
    const lateMs = Date.now() - untilMs;
    if (lateMs < 0) return;
    for (const file of files) {
      const path = relative(this.config.root, file.filepath);
      if (lateMs < GRACE_MS && !LONG_TESTS.includes(path)) continue;
      file.mode = "skip";
      process.stdout.write(`left out, since no time is left: ${path}\n`);
    }
  }
}

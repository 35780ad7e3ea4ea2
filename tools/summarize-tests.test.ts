import { describe, expect, it } from "vitest";
import { summarize } from "./summarize-tests.mjs";

const report = (passed: number, failed: number, pending = 0) => ({
  numPassedTests: passed,
  numFailedTests: failed,
  numPendingTests: pending,
  numTodoTests: 0,
  testResults: [],
});

describe("the closing line of npm test", () => {
  it("names what passed and failed, and what was skipped only where something was", () => {
    expect(summarize(report(3, 0), 0)).toMatchObject({ line: "3 passed, 0 failed", ok: true });
    expect(summarize(report(3, 2, 1), 1)).toMatchObject({
      line: "3 passed, 2 failed, 1 skipped",
      ok: false,
    });
  });

  it("counts a file that could not be loaded as a failure", () => {
    const broken = {
      ...report(3, 0),
      testResults: [{ name: "a.test.ts", status: "failed", assertionResults: [] }],
    };
    expect(summarize(broken, 1)).toMatchObject({ line: "3 passed, 1 failed", ok: false });
  });

  it("names a test that failed and then passed, and what it failed of", () => {
    const tests = [
      { fullName: "steady", status: "passed", failureMessages: [] },
      { fullName: "at times", status: "passed", failureMessages: ["expected 1 to be 2"] },
      { fullName: "never", status: "failed", failureMessages: ["no"] },
    ];
    const results = [{ name: "a.test.ts", status: "failed", assertionResults: tests }];
    const { unsteady } = summarize({ ...report(2, 1), testResults: results }, 1);
    expect(unsteady).toEqual(["a.test.ts: at times\nexpected 1 to be 2"]);
  });

  it("is not a success when nothing ran", () => {
    expect(summarize(report(0, 0), 0).ok).toBe(false);
  });

  it("is a failure when vitest ended badly, with a report or without one", () => {
    expect(summarize(report(3, 0), 1)).toMatchObject({ line: "3 passed, 1 failed", ok: false });
    expect(summarize(undefined, 1)).toMatchObject({ line: "0 passed, 1 failed", ok: false });
  });
});

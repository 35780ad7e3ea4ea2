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
    expect(summarize(report(3, 0), 0)).toEqual({ line: "3 passed, 0 failed", ok: true });
    expect(summarize(report(3, 2, 1), 1)).toEqual({
      line: "3 passed, 2 failed, 1 skipped",
      ok: false,
    });
  });

  it("counts a file that could not be loaded as a failure", () => {
    const broken = {
      ...report(3, 0),
      testResults: [{ status: "failed", assertionResults: [] }],
    };
    expect(summarize(broken, 1)).toEqual({ line: "3 passed, 1 failed", ok: false });
  });

  it("is not a success when nothing ran", () => {
    expect(summarize(report(0, 0), 0).ok).toBe(false);
  });

  it("is a failure when vitest ended badly, with a report or without one", () => {
    expect(summarize(report(3, 0), 1)).toEqual({ line: "3 passed, 1 failed", ok: false });
    expect(summarize(undefined, 1)).toEqual({ line: "0 passed, 1 failed", ok: false });
  });
});

// holds: test-summary

import { describe, expect, it } from "vitest";
import { summarize } from "./summarize-tests.mjs";

const file = (...states: string[]) => ({
  name: "a.test.ts",
  status: states.includes("failed") ? "failed" : "passed",
  assertionResults: states.map((status, at) => ({ fullName: `${at}`, status })),
});

describe("closing line of npm test", () => {
  it("counts: passed, failed and, where there are any, skipped tests", () => {
    const passed = file("passed", "passed", "passed");
    expect(summarize([passed], 0)).toMatchObject({ line: "3 passed, 0 failed", ok: true });
    expect(summarize([passed, file("failed", "failed", "pending")], 1)).toMatchObject({
      line: "3 passed, 2 failed, 1 skipped",
      ok: false,
    });
  });

  it("files: one that could not be loaded is a failure", () => {
    const broken = { name: "b.test.ts", status: "failed", assertionResults: [] };
    expect(summarize([file("passed"), broken], 1)).toMatchObject({
      line: "1 passed, 1 failed",
      ok: false,
    });
  });

  it("retries: a test that failed and then passed is named with its error", () => {
    const tests = [
      { fullName: "steady", status: "passed", failureMessages: [] },
      { fullName: "at times", status: "passed", failureMessages: ["expected 1 to be 2"] },
      { fullName: "never", status: "failed", failureMessages: ["no"] },
    ];
    const { unsteady } = summarize([{ ...file("failed"), assertionResults: tests }], 1);
    expect(unsteady).toEqual(["a.test.ts: at times\nexpected 1 to be 2"]);
  });

  it("failures: tests and files are named with the beginning of each error", () => {
    const tests = [
      { fullName: "well", status: "passed", failureMessages: [] },
      { fullName: "never", status: "failed", failureMessages: ["no\nat a.ts:1", "x".repeat(301)] },
    ];
    const broken = { name: "b.test.ts", status: "failed", message: "no such module" };
    const { failures } = summarize(
      [
        { ...file("failed"), assertionResults: tests },
        { ...broken, assertionResults: [] },
      ],
      1,
    );
    const second = "x".repeat(300);
    expect(failures).toEqual([
      `a.test.ts: never\n  no\n  at a.ts:1\n  ${second}`,
      "b.test.ts: no such module",
    ]);
    expect(summarize([file("passed")], 0).failures).toEqual([]);
  });

  it("no tests: not a success", () => {
    expect(summarize([], 0).ok).toBe(false);
    expect(summarize([file("pending")], 0).ok).toBe(false);
  });

  it("exit status: a run that ended badly has failed, with results or without", () => {
    expect(summarize([file("passed")], 1)).toMatchObject({ line: "1 passed, 1 failed", ok: false });
    expect(summarize([], 1)).toMatchObject({ line: "0 passed, 1 failed", ok: false });
  });
});

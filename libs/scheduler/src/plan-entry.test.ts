import { expect, test } from "vitest";
import { isSameEntry, type PlanEntry } from "./plan-entry.ts";

test("plan entry: copies are the same one, a job's recovery and another job are not", () => {
  const job: PlanEntry = { kind: "job", jobId: "a" };
  const others: PlanEntry[] = [
    { kind: "job", jobId: "b" },
    { kind: "recovery", jobId: "a" },
    { kind: "replica", deployment: "a" },
  ];
  expect(isSameEntry(job, { ...job })).toBe(true);
  expect(others.filter((other) => isSameEntry(job, other))).toEqual([]);
});

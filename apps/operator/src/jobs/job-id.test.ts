import { submitJobRequest } from "@heddle/contracts/api/job-spec";
import { expect, it } from "vitest";
import { jobIdOf, jobNameOf } from "./job-id.ts";

const metadata = {
  name: "a",
  namespace: "b",
  uid: "0c2f3a3e-6f7c-4d0e-9b45-6d2d3f0b7a11",
  resourceVersion: "1",
  generation: 1,
  creationTimestamp: "2026-11-28T03:49:32Z",
};

it("job id: an object always has the same one, and another object another one", () => {
  const id = jobIdOf(metadata);
  expect(jobIdOf({ ...metadata, resourceVersion: "2", generation: 7 })).toBe(id);
  expect(jobIdOf({ ...metadata, uid: metadata.uid.replace("0", "1") })).not.toBe(id);
  expect(submitJobRequest.safeParse({ id, name: "a" }).success).toBe(true);
});

it("job id: later objects have later ids", () => {
  const later = { ...metadata, creationTimestamp: "2026-11-28T03:49:33Z" };
  expect(jobIdOf(later) > jobIdOf(metadata)).toBe(true);
});

it("job name: long names of two objects stay different, and jobs take them", () => {
  expect(jobNameOf(metadata)).toBe("b.a");
  const long = { ...metadata, name: "a".repeat(253) };
  const other = { ...long, uid: metadata.uid.replace("0", "1") };
  expect(jobNameOf(other)).not.toBe(jobNameOf(long));
  expect(submitJobRequest.safeParse({ name: jobNameOf(long), command: "true" }).success).toBe(true);
});

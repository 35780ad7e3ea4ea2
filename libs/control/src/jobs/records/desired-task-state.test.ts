import { expect, test } from "vitest";
import { desiredTaskState } from "./desired-task-state.ts";
import type { JobRecord, TaskRecord } from "./records.ts";

const desired = (job: Partial<JobRecord> | undefined, task: Partial<TaskRecord> = {}) =>
  desiredTaskState(job && ({ attempt: 2, ...job } as JobRecord), {
    attempt: 2,
    phase: "running",
    ...task,
  } as TaskRecord);
const stopped = (why: string) => ({ order: "stop", checkpoint: false, why });

test.each([
  ["scheduled", "reserved", "lease"],
  ["starting", "leased", "start"],
  ["running", "running", "start"],
  ["recovering", "reserved", "lease"],
  ["recovering", "running", "start"],
] as const)("desired task: of a job that is %s, a task that is %s: %s", (state, phase, order) => {
  expect(desired({ state }, { phase: phase as TaskRecord["phase"] })).toEqual({ order });
});

test.each(["queued", "succeeded", "failed", "cancelled"] as const)(
  "desired task: of a job that is %s it is stopped at once",
  (state) => {
    expect(desired({ state: state as JobRecord["state"] })).toEqual(stopped(`the job is ${state}`));
  },
);

test("desired task: one that has ended is forgotten, whatever the job is", () => {
  for (const job of [undefined, { state: "running" }, { attempt: 3 }] as const) {
    expect(desired(job, { phase: "exited" })).toEqual({ order: "forget" });
  }
});

test("desired task: one of no job, or of another attempt, is stopped", () => {
  const why = stopped("the attempt has ended");
  expect(desired(undefined)).toEqual(why);
  for (const attempt of [1, 3]) expect(desired({ state: "running", attempt })).toEqual(why);
});

test("desired task: of a job that leaves it is stopped with a checkpoint, in time", () => {
  const leaving = { state: "checkpointing", dueMs: 70 } as const;
  const stop = { order: "stop", checkpoint: true, byMs: 70 };
  expect(desired(leaving)).toEqual({ ...stop, why: "preempt" });
  const cancelled = { ...leaving, leaving: { why: "cancel" } } as unknown as Partial<JobRecord>;
  expect(desired(cancelled)).toEqual({ ...stop, why: "cancel" });
});

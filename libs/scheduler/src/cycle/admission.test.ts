// holds: sched-quotas, sched-limits, sched-serving-quota

import { describe, expect, it } from "vitest";
import type { QueuedJob } from "../model.ts";
import { entryKey } from "../plan-entry.ts";
import { schedule } from "../schedule.ts";
import { HOUR_MS, input, node, project, queued, running } from "../testing/scenarios.ts";

const five = (change: Partial<QueuedJob> = {}) =>
  Array.from({ length: 5 }, (_, i) => queued(`j${i}`, { submittedAtMs: i, ...change }));

const starts = (...args: Parameters<typeof input>) => schedule(input(...args)).starts.length;

describe("admission", () => {
  it("counts jobs started in the same cycle against maxConcurrentJobs", () => {
    const busy = running("busy", [{ nodeId: "n", devices: [0] }]);
    const settings = { maxConcurrentJobs: 3 };
    expect(starts({ nodes: [node("n")], running: [busy] }, five(), { settings })).toBe(2);
  });

  it("charges each start its whole bound in GPU-hours, running jobs their remainder", () => {
    const projects = [project("p1", { quota: { gpuHours: 4.5 }, usedGpuHours: 1 })];
    const busy = running("busy", [{ nodeId: "n", devices: [0] }]);
    const at = { nowMs: HOUR_MS / 2 };
    expect(starts({ nodes: [node("n")], projects }, five(), at)).toBe(3);
    expect(starts({ nodes: [node("n")], projects, running: [busy] }, five(), at)).toBe(3);
    const wide = { maxRuntimeMs: 2 * HOUR_MS };
    expect(starts({ nodes: [node("n")], projects }, five(wide), at)).toBe(1);
  });

  it("charges serving without an end the job timeout", () => {
    const projects = [project("p1", { quota: { gpuHours: 4 } })];
    const serving = five({ kind: "serving", maxRuntimeMs: undefined });
    const settings = { jobTimeoutMs: 2 * HOUR_MS };
    expect(starts({ nodes: [node("n")], projects }, serving, { settings })).toBe(2);
  });

  it("counts serving and training against the same quota of GPUs", () => {
    const projects = [project("p1", { quota: { gpuMilli: 3_000 } })];
    const replica = running("s", [{ nodeId: "n", devices: [0] }], { kind: "serving" });
    expect(starts({ nodes: [node("n")], projects, running: [replica] }, five())).toBe(2);
  });

  it.each([
    ["a dependency", { waitingFor: ["j1"] }],
    ["its backoff", { notBeforeMs: 5_000 }],
  ])("a job that waits for %s takes no place of its project's queue", (_, waits) => {
    const projects = [project("p1", { quota: { queueLength: 1 } })];
    const [first, ...rest] = five();
    const at = input({ nodes: [node("n")], projects }, [{ ...first!, ...waits }, ...rest]);
    const { starts: made, pending } = schedule(at);
    expect(made.map(({ entry }) => entryKey(entry))).toEqual(["j1"]);
    const full = pending.filter(({ blockers }) => blockers[0]?.reason === "QueueFull");
    expect(full.map(({ entry }) => entryKey(entry))).toEqual(["j2", "j3", "j4"]);
  });

  it("lets lost tasks rejoin their running job regardless of queue and job limit", () => {
    const projects = [project("p1", { quota: { queueLength: 1 } })];
    const busy = running("busy", [{ nodeId: "n", devices: [0] }]);
    const queue = [queued("first", { submittedAtMs: -1 }), queued("lost", { joinsRunning: true })];
    const settings = { maxConcurrentJobs: 1 };
    const at = input({ nodes: [node("n")], projects, running: [busy] }, queue, { settings });
    expect(schedule(at).starts.map(({ entry }) => entryKey(entry))).toEqual(["lost"]);
  });

  it("leaves a project without a record unlimited", () => {
    expect(starts({ nodes: [node("n")] }, five())).toBe(5);
  });
});

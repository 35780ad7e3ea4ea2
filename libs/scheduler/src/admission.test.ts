import { describe, expect, it } from "vitest";
import type { QueuedJob } from "./model.ts";
import { schedule } from "./schedule.ts";
import { HOUR_MS, input, node, project, queued, running } from "./testing/scenarios.ts";

const five = (change: Partial<QueuedJob> = {}) =>
  Array.from({ length: 5 }, (_, i) => queued(`j${i}`, { submittedAtMs: i, ...change }));

const starts = (...args: Parameters<typeof input>) => schedule(input(...args)).starts.length;

describe("admission", () => {
  it("counts jobs started in the same round against maxConcurrentJobs", () => {
    const busy = running("busy", [{ nodeId: "n", devices: [0] }]);
    const settings = { maxConcurrentJobs: 3 };
    expect(starts({ nodes: [node("n")], running: [busy] }, five(), { settings })).toBe(2);
  });

  it("charges each start its whole bound in GPU-hours, running jobs what they have left", () => {
    const projects = [project("p1", { quota: { gpuHours: 4.5 }, usedGpuHours: 1 })];
    const busy = running("busy", [{ nodeId: "n", devices: [0] }]);
    const at = { nowMs: HOUR_MS / 2 };
    expect(starts({ nodes: [node("n")], projects }, five(), at)).toBe(3);
    expect(starts({ nodes: [node("n")], projects, running: [busy] }, five(), at)).toBe(3);
    const wide = { maxRuntimeMs: 2 * HOUR_MS };
    expect(starts({ nodes: [node("n")], projects }, five(wide), at)).toBe(1);
  });

  it("charges serving without an end one job timeout", () => {
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

  it("leaves a project without a record unlimited", () => {
    expect(starts({ nodes: [node("n")] }, five())).toBe(5);
  });
});

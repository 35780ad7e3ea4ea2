import { expect, test } from "vitest";
import { PlannedCluster } from "./testing/planned-cluster.ts";
import { jobId } from "./testing/specs.ts";

/** What one master puts into the log of how far the job is. */
function tell(cluster: PlannedCluster, attempt: number, step: number, atMs: number): void {
  const checkpoint = { name: `c${step}`, attempt, step, atMs };
  const entries = [{ jobId: jobId(1), attempt, progress: { atMs, attempt, step }, checkpoint }];
  cluster.do({ type: "jobs.progress", entries });
}

test("a new leader that has heard less than the one before it sets no job back to an older checkpoint", () => {
  const cluster = new PlannedCluster();
  cluster.join("a");
  cluster.submit(1);
  cluster.run(1);
  tell(cluster, 1, 20, 2_000);
  const { changedIndex } = cluster.job(1);
  tell(cluster, 1, 10, 1_000);
  expect(cluster.job(1)).toMatchObject({ progress: { step: 20 }, checkpoint: { name: "c20" } });
  expect(cluster.job(1).changedIndex).toBe(changedIndex);
  tell(cluster, 1, 30, 3_000);
  expect(cluster.job(1)).toMatchObject({ progress: { step: 30 }, checkpoint: { name: "c30" } });
  // The next attempt may run where the clock is behind.
  cluster.report(1, "exited", { reason: "GpuFault", endedAtMs: 4_000 });
  cluster.run(1);
  tell(cluster, 2, 31, 500);
  expect(cluster.job(1)).toMatchObject({ attempt: 2, progress: { step: 31 } });
  expect(cluster.job(1).checkpoint).toMatchObject({ name: "c31" });
});

test("progress in the log of an earlier version, which names no attempt, is taken as that version took it", () => {
  const cluster = new PlannedCluster();
  cluster.join("a");
  cluster.submit(1);
  cluster.run(1);
  for (const progress of [
    { atMs: 2_000, step: 20 },
    { atMs: 1_000, step: 10 },
  ]) {
    cluster.do({ type: "jobs.progress", entries: [{ jobId: jobId(1), attempt: 1, progress }] });
    expect(cluster.job(1).progress).toEqual(progress);
    expect(Object.keys(cluster.job(1).progress ?? {})).toEqual(["atMs", "step"]);
  }
});

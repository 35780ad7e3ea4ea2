// holds: life-progress-clock, life-other-attempt, life-leader-knowledge

import { expect, test } from "vitest";
import { GROUPS_REPORTS, HARDENED } from "../../cluster-version.ts";
import { ReplicatedControl } from "../../replicated-control.ts";
import { newestControl } from "../../testing/newest-control.ts";
import { PlannedCluster } from "../testing/planned-cluster.ts";
import { jobId } from "../testing/specs.ts";

/** The job's progress as one master proposes it. */
function propose(cluster: PlannedCluster, attempt: number, step: number, atMs: number): void {
  const checkpoint = { name: `c${step}`, attempt, step, atMs };
  const entries = [{ jobId: jobId(1), attempt, progress: { atMs, attempt, step }, checkpoint }];
  cluster.do({ type: "jobs.progress", entries });
}

test("progress: a new leader with older readings sets no job back", () => {
  const cluster = new PlannedCluster();
  cluster.join("a");
  cluster.submit(1);
  cluster.run(1);
  propose(cluster, 1, 20, 2_000);
  const { changedIndex } = cluster.job(1);
  propose(cluster, 1, 10, 1_000);
  expect(cluster.job(1)).toMatchObject({ progress: { step: 20 }, checkpoint: { name: "c20" } });
  expect(cluster.job(1).changedIndex).toBe(changedIndex);
  propose(cluster, 1, 30, 3_000);
  expect(cluster.job(1)).toMatchObject({ progress: { step: 30 }, checkpoint: { name: "c30" } });
  // The next attempt may run on a node whose clock is behind.
  cluster.report(1, "exited", { reason: "GpuFault", endedAtMs: 4_000 });
  cluster.run(1);
  propose(cluster, 2, 31, 500);
  expect(cluster.job(1)).toMatchObject({ attempt: 2, progress: { step: 31 } });
  expect(cluster.job(1).checkpoint).toMatchObject({ name: "c31" });
});

test("progress: a rank whose clock is behind counts, since the hardened version", () => {
  for (const control of [new ReplicatedControl(), newestControl()]) {
    const cluster = new PlannedCluster(control);
    cluster.join("a");
    cluster.submit(1);
    cluster.run(1);
    const say = (rank: number, atMs: number, step?: number) => {
      const reading = { attempt: 1, rank, incarnation: 0, atMs, ...(step && { step }) };
      const checkpoint = { ...reading, name: `c${step ?? atMs}` };
      const entries = [{ jobId: jobId(1), attempt: 1, progress: reading, checkpoint }];
      cluster.do({ type: "jobs.progress", entries });
      return [cluster.job(1).progress?.atMs, cluster.job(1).checkpoint?.atMs];
    };
    const isHardened = control.version >= HARDENED;
    say(0, 3_600_000, 20);
    // An hour behind; a lower step of another task is older nevertheless.
    expect(say(1, 10, 10)).toEqual([3_600_000, 3_600_000]);
    expect(say(1, 20, 30)).toEqual(isHardened ? [20, 20] : [3_600_000, 3_600_000]);
    // Without steps, another task's reading counts on arrival, and a task's own by its clock.
    say(0, 7_200_000);
    expect(say(1, 40)).toEqual(isHardened ? [40, 40] : [7_200_000, 7_200_000]);
    expect(say(1, 39)).toEqual(isHardened ? [40, 40] : [7_200_000, 7_200_000]);
  }
});

test("progress: a log of version 1, without attempts, applies by its old rule", () => {
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

test("progress: readings of an older attempt are ignored", () => {
  const cluster = new PlannedCluster();
  cluster.join("a");
  cluster.submit(1, { retry_limit: 1 });
  cluster.run(1);
  propose(cluster, 1, 10, 1_000);
  cluster.report(1, "exited", { reason: "ExitCode", exitCode: 1, endedAtMs: 1_500 });
  cluster.pass(10_000);
  cluster.run(1);
  expect(cluster.job(1)).toMatchObject({ attempt: 2, state: "running" });
  const before = cluster.job(1);
  propose(cluster, 1, 99, 999_000);
  propose(cluster, 3, 99, 999_000);
  expect(cluster.job(1)).toBe(before);
  propose(cluster, 2, 11, 2_000);
  expect(cluster.job(1)).toMatchObject({ progress: { step: 11 }, checkpoint: { name: "c11" } });
});

test("reports: those of two nodes in one entry count as one after the other", () => {
  for (const control of [new ReplicatedControl(), newestControl()]) {
    const cluster = new PlannedCluster(control);
    const whole = { resources: { gpu_count: 8 } };
    for (const [at, id] of ["a", "b"].entries()) {
      cluster.join(id, { gpuCount: 8 });
      cluster.submit(at + 1, whole);
    }
    cluster.plan();
    const tasks = [...control.state.tasks.values()];
    expect(new Set(tasks.map(({ nodeId }) => nodeId))).toEqual(new Set(["a", "b"]));
    const say = (phase: string, exit?: object) => {
      const [first, ...others] = tasks.map(({ jobId, attempt, rank, nodeId }) => {
        return { nodeId, reports: [{ jobId, attempt, rank, phase, exit }] };
      });
      cluster.do({ type: "tasks.report", ...first, others });
      return [1, 2].map((n) => cluster.job(n).state);
    };
    const isGrouped = control.version >= GROUPS_REPORTS;
    expect(say("leased")).toEqual(["starting", isGrouped ? "starting" : "scheduled"]);
    expect(say("running")).toEqual(["running", isGrouped ? "running" : "scheduled"]);
    const ends = say("exited", { endedAtMs: 1 });
    expect(ends).toEqual(["succeeded", isGrouped ? "succeeded" : "scheduled"]);
  }
});

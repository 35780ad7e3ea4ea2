// holds: life-root-cause

import { describe, expect, test } from "vitest";
import { PlannedCluster } from "../testing/planned-cluster.ts";
import { jobId } from "../testing/specs.ts";

const STATUS_TIMEOUT_MS = 160_000;

/** A running gang of two on the nodes `a` and `b`; returns the rank on each. */
function runningGang(change: Record<string, unknown> = {}) {
  const cluster = new PlannedCluster();
  cluster.join("a", { gpuCount: 1 });
  cluster.join("b", { gpuCount: 1 });
  cluster.submit(1, { tasks: 2, resources: { gpu_count: 2 }, ...change });
  cluster.run(1);
  const nodeOf = (rank: number) =>
    cluster.control.state.tasks.get(`${jobId(1)}/1/${rank}`)?.nodeId ?? "";
  const ends = (rank: number, reason: string, endedAtMs = 1) => {
    const exit = { reason, message: `rank ${rank} ends`, exitCode: 1, endedAtMs };
    const reports = [{ jobId: jobId(1), attempt: 1, rank, phase: "exited", exit }];
    cluster.do({
      type: "tasks.report",
      nodeId: nodeOf(rank),
      reports,
      statusTimeoutMs: STATUS_TIMEOUT_MS,
    });
  };
  const lose = (rank: number) => {
    const fencedAtMs = cluster.atMs + 155_000;
    cluster.do({ type: "node.lost", nodeIds: [nodeOf(rank)], fencedAtMs });
  };
  const confirm = (suspectedMs = cluster.job(1).suspectedMs) =>
    cluster.do({
      type: "jobs.confirmFailures",
      entries: [{ jobId: jobId(1), attempt: 1, suspectedMs }],
    });
  return { cluster, ends, lose, confirm };
}

describe("root cause: a rank that exits with a non-zero code", () => {
  test("stays unconfirmed until the other's node has reported", () => {
    const { cluster, ends, confirm } = runningGang();
    ends(1, "ExitCode");
    const held = cluster.job(1);
    expect(held).toMatchObject({ state: "running", failures: 0, suspectedMs: cluster.atMs });
    expect(held.failure?.message).toMatch(
      /^rank 1 ends; it is confirmed once the nodes .* have reported/,
    );
    expect(held.dueMs).toBe(cluster.atMs + STATUS_TIMEOUT_MS);
    confirm(held.suspectedMs! - 1);
    expect(cluster.job(1)).toEqual(held);
    confirm();
    const failure = { reason: "ExitCode", message: "rank 1 ends", rank: 1 };
    expect(cluster.job(1)).toMatchObject({ state: "failed", failures: 1, failure });
    expect(cluster.job(1).suspectedMs).toBeUndefined();
    expect(cluster.control.jobs.suspected.size).toBe(0);
  });

  test("is a lost node, without a retry, if the other's node is lost", () => {
    const { cluster, ends, lose } = runningGang();
    ends(1, "ExitCode");
    lose(0);
    const failure = { reason: "NodeLost", rank: 0 };
    expect(cluster.job(1)).toMatchObject({ state: "retrying", failures: 0, losses: 1, failure });
  });

  test("counts as a lost rank for a job that tolerates one", () => {
    const { cluster, ends, lose } = runningGang({ failure_tolerance: 1 });
    ends(1, "Hang");
    lose(0);
    expect(cluster.job(1)).toMatchObject({ state: "retrying", failures: 0, losses: 1 });
  });

  test("is a lost node if the other's node does not report until the lease expires", () => {
    const { cluster, ends } = runningGang();
    ends(1, "ExitCode");
    cluster.atMs += STATUS_TIMEOUT_MS;
    cluster.do({ type: "clock.tick" });
    expect(cluster.job(1)).toMatchObject({ state: "retrying", failures: 0, losses: 1 });
    expect(cluster.job(1).failure).toMatchObject({ reason: "NodeLost" });
  });

  test("is the unhealthy device of another rank that is reported later", () => {
    const { cluster, ends } = runningGang();
    ends(1, "ExitCode");
    ends(0, "GpuFault");
    const failure = { reason: "GpuFault", rank: 0 };
    expect(cluster.job(1)).toMatchObject({ state: "pending", failures: 0, losses: 1, failure });
  });

  test("is confirmed at once if the other has exited too; the first exit counts", () => {
    const { cluster, ends } = runningGang();
    ends(0, "ExitCode", 7);
    expect(cluster.job(1).state).toBe("running");
    ends(1, "ExitCode", 6);
    expect(cluster.job(1)).toMatchObject({ state: "failed", failure: { rank: 1 } });
  });

  test("is confirmed at once on one node, and if the reason is the rank's own", () => {
    const cluster = new PlannedCluster();
    cluster.join("a");
    cluster.submit(1, { tasks: 2, resources: { gpu_count: 2 } });
    cluster.run(1);
    const exit = { reason: "ExitCode", endedAtMs: 1 };
    const reports = [{ jobId: jobId(1), attempt: 1, rank: 0, phase: "exited", exit }];
    cluster.do({ type: "tasks.report", nodeId: "a", reports, statusTimeoutMs: STATUS_TIMEOUT_MS });
    expect(cluster.job(1).state).toBe("failed");
    const own = runningGang();
    own.ends(0, "OutOfMemory");
    expect(own.cluster.job(1)).toMatchObject({ state: "failed", failures: 1 });
  });

  test("is no failure of a job that is preempted or cancelled meanwhile", () => {
    for (const request of ["suspend", "cancel"]) {
      const { cluster, ends, confirm } = runningGang();
      ends(1, "ExitCode");
      const { suspectedMs } = cluster.job(1);
      cluster.do({ type: "job.request", jobId: jobId(1), request });
      expect(cluster.job(1)).not.toHaveProperty("failure");
      expect(cluster.job(1)).not.toHaveProperty("suspectedMs");
      confirm(suspectedMs);
      expect(["checkpointing", "cancelling"]).toContain(cluster.job(1).state);
    }
  });
});

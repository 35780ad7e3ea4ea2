import { describe, expect, test } from "vitest";
import { PlannedCluster } from "../testing/planned-cluster.ts";
import { jobId } from "../testing/specs.ts";

const WORD_MS = 160_000;

/** A gang of two that runs, a rank on each of the nodes `a` and `b`; which is which is told. */
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
    cluster.do({ type: "tasks.report", nodeId: nodeOf(rank), reports, wordMs: WORD_MS });
  };
  const lose = (rank: number) => {
    const fencedAtMs = cluster.atMs + 155_000;
    cluster.do({ type: "node.lost", nodeIds: [nodeOf(rank)], fencedAtMs });
  };
  const judge = (suspectedMs = cluster.job(1).suspectedMs) =>
    cluster.do({ type: "jobs.judge", entries: [{ jobId: jobId(1), attempt: 1, suspectedMs }] });
  return { cluster, ends, lose, judge };
}

describe("a rank that exits with another code than 0", () => {
  test("waits for word of the other's node, visibly, and is the failure once that has come", () => {
    const { cluster, ends, judge } = runningGang();
    ends(1, "ExitCode");
    const held = cluster.job(1);
    expect(held).toMatchObject({ state: "running", failures: 0, suspectedMs: cluster.atMs });
    expect(held.failure?.message).toMatch(/^rank 1 ends; it counts once the nodes .* heard of/);
    expect(held.dueMs).toBe(cluster.atMs + WORD_MS);
    judge(held.suspectedMs! - 1);
    expect(cluster.job(1)).toEqual(held);
    judge();
    const failure = { reason: "ExitCode", message: "rank 1 ends", rank: 1 };
    expect(cluster.job(1)).toMatchObject({ state: "failed", failures: 1, failure });
    expect(cluster.job(1).suspectedMs).toBeUndefined();
    expect(cluster.control.jobs.suspected.size).toBe(0);
  });

  test("is a lost node, and no retry is used, where the other's node turns out to be lost", () => {
    const { cluster, ends, lose } = runningGang();
    ends(1, "ExitCode");
    lose(0);
    const failure = { reason: "NodeLost", rank: 0 };
    expect(cluster.job(1)).toMatchObject({ state: "retrying", failures: 0, losses: 1, failure });
  });

  test("is a lost node to a job that tolerates one: the rank that ended is lost with it", () => {
    const { cluster, ends, lose } = runningGang({ failure_tolerance: 1 });
    ends(1, "Hang");
    lose(0);
    expect(cluster.job(1)).toMatchObject({ state: "retrying", failures: 0, losses: 1 });
  });

  test("is a lost node where no word has come until the lease is over", () => {
    const { cluster, ends } = runningGang();
    ends(1, "ExitCode");
    cluster.atMs += WORD_MS;
    cluster.do({ type: "clock.tick" });
    expect(cluster.job(1)).toMatchObject({ state: "retrying", failures: 0, losses: 1 });
    expect(cluster.job(1).failure).toMatchObject({ reason: "NodeLost" });
  });

  test("is laid to the sick device of another rank that is told later", () => {
    const { cluster, ends } = runningGang();
    ends(1, "ExitCode");
    ends(0, "GpuFault");
    const failure = { reason: "GpuFault", rank: 0 };
    expect(cluster.job(1)).toMatchObject({ state: "pending", failures: 0, losses: 1, failure });
  });

  test("is the failure at once where the other has ended too, the first by time", () => {
    const { cluster, ends } = runningGang();
    ends(0, "ExitCode", 7);
    expect(cluster.job(1).state).toBe("running");
    ends(1, "ExitCode", 6);
    expect(cluster.job(1)).toMatchObject({ state: "failed", failure: { rank: 1 } });
  });

  test("is the failure at once on one node, and where the reason is the rank's own", () => {
    const cluster = new PlannedCluster();
    cluster.join("a");
    cluster.submit(1, { tasks: 2, resources: { gpu_count: 2 } });
    cluster.run(1);
    const exit = { reason: "ExitCode", endedAtMs: 1 };
    const reports = [{ jobId: jobId(1), attempt: 1, rank: 0, phase: "exited", exit }];
    cluster.do({ type: "tasks.report", nodeId: "a", reports, wordMs: WORD_MS });
    expect(cluster.job(1).state).toBe("failed");
    const own = runningGang();
    own.ends(0, "OutOfMemory");
    expect(own.cluster.job(1)).toMatchObject({ state: "failed", failures: 1 });
  });

  test("is no failure of a job that is asked to leave or cancelled meanwhile", () => {
    for (const request of ["suspend", "cancel"]) {
      const { cluster, ends, judge } = runningGang();
      ends(1, "ExitCode");
      const { suspectedMs } = cluster.job(1);
      cluster.do({ type: "job.request", jobId: jobId(1), request });
      expect(cluster.job(1)).not.toHaveProperty("failure");
      expect(cluster.job(1)).not.toHaveProperty("suspectedMs");
      judge(suspectedMs);
      expect(["checkpointing", "cancelling"]).toContain(cluster.job(1).state);
    }
  });
});

import { expect, test } from "vitest";
import { PlannedCluster } from "./testing/planned-cluster.ts";
import { jobId, scheduledModel } from "./testing/specs.ts";

const HOUR_MS = 3_600_000;

/** A plan of the cluster's limits that says nothing but what is given. */
const plan = (cluster: PlannedCluster, change: Record<string, unknown>) =>
  cluster.do({
    ...{ type: "plan.commit", basedOnIndex: 0, overcommitRatio: 1, acknowledgeMs: 1_000 },
    limits: { jobTimeoutMs: 2 * HOUR_MS, maxConcurrentJobs: 1_000 },
    ...{ admitted: [], unsatisfiable: [], starts: [], preemptions: [], expired: [] },
    ...change,
  });

/** Job 1 runs on the only GPU, and job 2 waits for it. */
function contended() {
  const cluster = new PlannedCluster();
  cluster.join("a", { gpuCount: 1 });
  cluster.submit(1);
  cluster.run(1);
  cluster.submit(2, { resources: { gpu_count: 1, priority: 9 } });
  plan(cluster, { admitted: [jobId(2)] });
  return cluster;
}

test("nobody is evicted for a job that does not wait any more, and the plan is told", () => {
  for (const request of ["cancel", "suspend"]) {
    const cluster = contended();
    cluster.do({ type: "job.request", jobId: jobId(2), request });
    const preemptions = [{ victimId: jobId(1), forJobId: jobId(2) }];
    const refused = [{ jobId: jobId(2), why: "not_waiting" }];
    expect(plan(cluster, { preemptions })).toMatchObject({ refused });
    expect(cluster.job(1).state).toBe("running");
  }
});

test("nobody is evicted for a model that was removed, but for one whose replica waits", () => {
  const cluster = contended();
  const preemptions = [{ victimId: jobId(1), forJobId: "serving:m" }];
  expect(plan(cluster, { preemptions })).toMatchObject({ refused: [{ why: "not_waiting" }] });
  cluster.do({ ...scheduledModel("m", 1, cluster.atMs) });
  expect(plan(cluster, { preemptions })).toEqual({ ok: true });
  expect(cluster.job(1).state).toBe("checkpointing");
});

test("a bound holds for the attempt that runs, not for the one that the plan saw", () => {
  const cluster = contended();
  cluster.atMs += 2 * HOUR_MS;
  plan(cluster, { preemptions: [{ victimId: jobId(1), forJobId: jobId(2) }] });
  cluster.report(1, "stopping");
  cluster.report(1, "exited", { endedAtMs: 1 });
  cluster.do({ type: "job.request", jobId: jobId(2), request: "cancel" });
  cluster.run(1);
  expect(cluster.job(1)).toMatchObject({ state: "running", attempt: 2 });
  plan(cluster, { expired: [jobId(1)] });
  expect(cluster.job(1)).toMatchObject({ state: "running", attempt: 2 });
  cluster.atMs += 2 * HOUR_MS;
  plan(cluster, { expired: [jobId(1)] });
  expect(cluster.job(1)).toMatchObject({ failure: { reason: "DeadlineExceeded" } });
});

test("a job that was suspended before it was admitted is still to be admitted when it is resumed", () => {
  const cluster = new PlannedCluster();
  cluster.join("a");
  cluster.submit(1, { resources: { gpu_count: 99 }, tasks: 99 });
  for (const request of ["suspend", "suspend", "resume"]) {
    cluster.do({ type: "job.request", jobId: jobId(1), request });
  }
  expect(cluster.job(1).state).toBe("accepted");
  plan(cluster, { unsatisfiable: [{ jobId: jobId(1), message: "never" }] });
  expect(cluster.job(1)).toMatchObject({ state: "failed", failure: { reason: "Unsatisfiable" } });
  cluster.submit(2);
  plan(cluster, { admitted: [jobId(2)] });
  for (const request of ["suspend", "resume"]) {
    cluster.do({ type: "job.request", jobId: jobId(2), request });
  }
  expect(cluster.job(2).state).toBe("pending");
});

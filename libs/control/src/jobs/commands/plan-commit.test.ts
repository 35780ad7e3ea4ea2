// holds: sched-stale-plan

import { jobEntry, type PlanEntry, replicaEntry } from "@heddle/scheduler/plan-entry";
import { schedule } from "@heddle/scheduler/schedule";
import { expect, test } from "vitest";
import { ReplicatedControl } from "../../replicated-control.ts";
import { schedulingInput } from "../scheduling/scheduling-input.ts";
import { PlannedCluster } from "../testing/planned-cluster.ts";
import { jobId, modelOnDevice, scheduledModel } from "../testing/specs.ts";

const HOUR_MS = 3_600_000;

/** A plan with the cluster's limits and only the given decisions. */
const plan = (cluster: PlannedCluster, change: Record<string, unknown>) =>
  cluster.do({
    type: "plan.commit",
    basedOnIndex: 0,
    overcommitRatio: 1,
    acknowledgeMs: 1_000,
    limits: { jobTimeoutMs: 2 * HOUR_MS, maxConcurrentJobs: 1_000 },
    admitted: [],
    unsatisfiable: [],
    starts: [],
    preemptions: [],
    expired: [],
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

// holds: life-preemption-reason
test("preemption: none for a job that no longer waits, and the reply says so", () => {
  for (const request of ["cancel", "suspend"]) {
    const cluster = contended();
    cluster.do({ type: "job.request", jobId: jobId(2), request });
    const preemptions = [{ victimId: jobId(1), forEntry: jobEntry(jobId(2)) }];
    const refused = [{ entry: jobEntry(jobId(2)), why: "not_waiting" }];
    expect(plan(cluster, { preemptions })).toMatchObject({ refused });
    expect(cluster.job(1).state).toBe("running");
  }
});

test("preemption: none for a removed model, but for one whose replica waits", () => {
  const cluster = contended();
  const preemptions = [{ victimId: jobId(1), forEntry: replicaEntry("m") }];
  expect(plan(cluster, { preemptions })).toMatchObject({ refused: [{ why: "not_waiting" }] });
  cluster.do({ ...scheduledModel("m", 1, cluster.atMs) });
  expect(plan(cluster, { preemptions })).toEqual({ ok: true });
  expect(cluster.job(1).state).toBe("checkpointing");
});

test("time limit: applies to the running attempt, not to the one that the plan saw", () => {
  const cluster = contended();
  cluster.atMs += 2 * HOUR_MS;
  plan(cluster, { preemptions: [{ victimId: jobId(1), forEntry: jobEntry(jobId(2)) }] });
  cluster.report(1, "stopping");
  cluster.report(1, "exited", { endedAtMs: 1 });
  cluster.do({ type: "job.request", jobId: jobId(2), request: "cancel" });
  cluster.run(1);
  expect(cluster.job(1)).toMatchObject({ state: "running", attempt: 2 });
  plan(cluster, { expired: [jobId(1)] });
  expect(cluster.job(1)).toMatchObject({ state: "running", attempt: 2 });
  const endsAtMs = cluster.job(1).startedAtMs! + 2 * HOUR_MS;
  plan(cluster, { atMs: endsAtMs - 1, expired: [jobId(1)] });
  expect(cluster.job(1).state).toBe("running");
  plan(cluster, { atMs: endsAtMs, expired: [jobId(1)] });
  expect(cluster.job(1)).toMatchObject({ failure: { reason: "DeadlineExceeded" } });
});

test("time limit: a plan of an older log, without limits, ends the jobs that it names", () => {
  const cluster = contended();
  plan(cluster, { limits: undefined, expired: [jobId(1)] });
  expect(cluster.job(1)).toMatchObject({ failure: { reason: "DeadlineExceeded" } });
});

test("time limit: also ends a job of which no task is left", () => {
  const cluster = new PlannedCluster();
  cluster.join("a", { gpuCount: 2 });
  cluster.submit(1, { tasks: 2, failure_tolerance: 1, resources: { gpu_count: 2 } });
  cluster.run(1);
  const ends = [{ reason: "NodeLost" }, { exitCode: 0 }].map((how, at) => {
    const task = { jobId: jobId(1), attempt: 1, rank: 1 - at };
    return { ...task, phase: "exited", exit: { ...how, endedAtMs: 1 } };
  });
  for (const report of ends) cluster.do({ type: "tasks.report", nodeId: "a", reports: [report] });
  expect(cluster.job(1)).toMatchObject({ state: "recovering", liveTasks: 0 });
  plan(cluster, { expired: [jobId(1)] });
  expect(cluster.job(1)).toMatchObject({ failure: { reason: "DeadlineExceeded" } });
});

// holds: life-suspend-admission
test("suspend: a job suspended before admission is admitted after its resume", () => {
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

/** Jobs 1 and 2 run on a and b; 3 and 4 wait for a alone, 5 for either. */
function rankedJobs() {
  const cluster = new PlannedCluster();
  const on = (host: string, change: object) => {
    const here = { key: "name", operator: "in", values: [host] };
    return { resources: { gpu_count: 1, node_affinity: [here], ...change } };
  };
  for (const id of ["a", "b"]) cluster.join(id, { gpuCount: 1 });
  cluster.submit(1, on("a", { priority: 9 }));
  cluster.submit(2, on("b", { priority: -1 }));
  for (const n of [1, 2]) cluster.run(n);
  for (const n of [3, 4]) cluster.submit(n, on("a", {}));
  cluster.submit(5, { resources: { gpu_count: 1 } });
  cluster.plan();
  return cluster;
}

// holds: sched-reservations
test("reservations: the next plan and a restored master keep them until the start", async () => {
  const cluster = rankedJobs();
  const held = () => [3, 4, 5].map((n) => cluster.job(n).reservationRank);
  const { reservationRank, reservedStartMs } = cluster.job(4);
  expect([held(), reservationRank, reservedStartMs]).toEqual([[0, 1, 2], 1, undefined]);
  expect(cluster.job(5).reservedStartMs).toBeGreaterThan(cluster.atMs);
  expect(cluster.job(2)).toMatchObject({ leaving: { forEntry: jobEntry(jobId(5)) } });
  const restored = new ReplicatedControl();
  await restored.restore([...cluster.control.snapshot()]);
  expect([...restored.jobs.ranked].sort()).toEqual([3, 4, 5].map(jobId));
  const at = { index: restored.index, nowMs: cluster.atMs };
  const { ranked } = schedule(schedulingInput(restored.state, restored.jobs, at));
  expect(ranked).toEqual([3, 4, 5].map(jobId).map(jobEntry));
  cluster.do({ type: "job.request", jobId: jobId(3), request: "suspend" });
  expect(cluster.plan().plan.ranked).toEqual([4, 5].map(jobId).map(jobEntry));
  // Entries that stay keep their rank, so only changes are written.
  expect(held()).toEqual([undefined, 1, 2]);
  cluster.report(2, "exited", { endedAtMs: 1 });
  expect(cluster.plan().plan.starts).toMatchObject([{ entry: jobEntry(jobId(5)) }]);
  expect([held(), [...cluster.control.jobs.ranked]]).toEqual([
    [undefined, 1, undefined],
    [jobId(4)],
  ]);
});

test("reservations: a job that the plan leaves out loses its own", () => {
  const cluster = rankedJobs();
  plan(cluster, { reservation: { jobId: jobId(4), startAtMs: 5 } });
  expect(cluster.job(4)).toMatchObject({ reservedStartMs: 5 });
  for (const n of [3, 4, 5]) expect(cluster.job(n)).not.toHaveProperty("reservationRank");
  plan(cluster, {});
  for (const n of [3, 4, 5]) expect(cluster.job(n)).not.toHaveProperty("reservedStartMs");
  expect(cluster.control.jobs.ranked.size).toBe(0);
});

test("reservations: lost tasks that rejoin keep their rank before later jobs", () => {
  const cluster = new PlannedCluster();
  const on = (hosts: string[], priority: number, count = 1) => {
    const here = { key: "name", operator: "in", values: hosts };
    return { resources: { gpu_count: count, priority, node_affinity: [here] } };
  };
  for (const id of ["a", "b", "c", "d"]) cluster.join(id, { gpuCount: 1 });
  cluster.submit(1, { ...on(["a", "b", "c"], 0, 2), tasks: 2, failure_tolerance: 1 });
  cluster.run(1);
  const nodesOf = (n: number) =>
    [...cluster.control.state.tasks.values()]
      .filter(({ jobId: id, phase }) => id === jobId(n) && phase !== "lost" && phase !== "exited")
      .map(({ nodeId }) => nodeId);
  const free = ["a", "b", "c"].find((id) => !nodesOf(1).includes(id))!;
  cluster.submit(2, on([free], -1));
  cluster.submit(3, on(["d"], -1));
  for (const n of [2, 3]) cluster.run(n);
  const lost = nodesOf(1)[0]!;
  cluster.do({ type: "node.lost", nodeIds: [lost], fencedAtMs: cluster.atMs });
  cluster.pass(1_000);
  expect(cluster.job(1).state).toBe("recovering");
  cluster.submit(4, on([free, "d"], 0));
  cluster.plan();
  expect(cluster.job(2)).toMatchObject({
    leaving: { forEntry: { kind: "recovery", jobId: jobId(1) } },
  });
  expect(cluster.job(3)).toMatchObject({ leaving: { forEntry: jobEntry(jobId(4)) } });
  expect([1, 4].map((n) => cluster.job(n).reservationRank)).toEqual([0, 1]);
  cluster.report(2, "exited", { endedAtMs: 1 });
  expect(cluster.plan().plan.starts).toMatchObject([
    { entry: { kind: "recovery", jobId: jobId(1) } },
  ]);
  expect([...cluster.control.jobs.ranked]).toEqual([jobId(4)]);
});

test("reservations: a job whose start a stale plan refuses keeps its rank", () => {
  const cluster = rankedJobs();
  const starts = [{ entry: jobEntry(jobId(3)), placements: [{ nodeId: "a", devices: [0] }] }];
  const line = [4, 5].map((n) => ({ jobId: jobId(n) }));
  expect(plan(cluster, { starts, line })).toMatchObject({
    refused: [{ entry: jobEntry(jobId(3)) }],
  });
  expect([3, 4, 5].map((n) => cluster.job(n).reservationRank)).toEqual([0, 1, 2]);
  plan(cluster, { line });
  expect(cluster.job(3)).not.toHaveProperty("reservationRank");
});

// holds: sched-apply-conditions
test("start: refused while dependencies have not succeeded", () => {
  const cluster = new PlannedCluster();
  cluster.join("a");
  cluster.submit(1, { resources: { gpu_count: 1 } });
  cluster.submit(2, { resources: { gpu_count: 1 }, dependencies: ["n1"] });
  const starts = [{ entry: jobEntry(jobId(2)), placements: [{ nodeId: "a", devices: [0] }] }];
  const admitted = [jobId(1), jobId(2)];
  const refused = [{ entry: jobEntry(jobId(2)), why: "not_waiting" }];
  expect(plan(cluster, { admitted, starts })).toEqual({ ok: true, refused });
  expect(cluster.job(2)).toMatchObject({ state: "pending", attempt: 0, liveTasks: 0 });
  expect(cluster.control.state.tasks.size).toBe(0);
  cluster.run(1);
  cluster.report(1, "exited", { endedAtMs: 1 });
  expect(plan(cluster, { starts })).toEqual({ ok: true });
  expect(cluster.job(2)).toMatchObject({ state: "scheduled", attempt: 1 });
});

// holds: sched-apply-conditions
test("start: refused before the backoff of a failed job ends", () => {
  const cluster = new PlannedCluster();
  cluster.join("a");
  cluster.submit(1, { resources: { gpu_count: 1 }, retry_limit: 9 });
  for (let failure = 1; failure <= 4; failure++) {
    cluster.pass(60_000);
    cluster.run(1);
    cluster.report(1, "exited", { endedAtMs: 1, reason: "ExitCode", exitCode: 1 });
  }
  const { notBeforeMs = 0 } = cluster.job(1);
  expect(notBeforeMs).toBe(cluster.atMs + 8_000);
  const starts = [{ entry: jobEntry(jobId(1)), placements: [{ nodeId: "a", devices: [0] }] }];
  cluster.atMs = notBeforeMs - 1_001;
  const refused = [{ entry: jobEntry(jobId(1)), why: "not_waiting" }];
  expect(plan(cluster, { starts })).toEqual({ ok: true, refused });
  expect(cluster.job(1)).toMatchObject({ state: "pending", attempt: 4 });
  cluster.atMs = notBeforeMs - 1_000;
  expect(plan(cluster, { starts })).toEqual({ ok: true });
  expect(cluster.job(1)).toMatchObject({ state: "scheduled", attempt: 5 });
});

// holds: sched-exact
test("start: refused on a named device of which a thousandth is in use", () => {
  const cluster = new PlannedCluster();
  cluster.join("a", { gpuCount: 2 });
  const startOn = (device: number, entry: PlanEntry) =>
    plan(cluster, {
      starts: [{ entry, placements: [{ nodeId: "a", devices: [device] }] }],
    });
  const refusedFor = (entry: PlanEntry, why: string) => ({
    ok: true,
    refused: [{ entry, why }],
  });
  for (const n of [1, 2]) cluster.submit(n, { resources: { gpu_count: 0.001 } });
  plan(cluster, { admitted: [jobId(1), jobId(2)] });
  expect(startOn(1, jobEntry(jobId(1)))).toEqual({ ok: true });
  cluster.do({ ...modelOnDevice("m", "1", 1, cluster.atMs) });
  expect(startOn(1, replicaEntry("m"))).toEqual(refusedFor(replicaEntry("m"), "over_capacity"));
  expect(startOn(0, replicaEntry("m"))).toEqual(refusedFor(replicaEntry("m"), "wrong_devices"));
  expect(cluster.control.state.replicas.size).toBe(0);
  cluster.report(1, "exited", { endedAtMs: 1 });
  expect(startOn(1, replicaEntry("m"))).toEqual({ ok: true });
  expect(startOn(1, jobEntry(jobId(2)))).toEqual(refusedFor(jobEntry(jobId(2)), "over_capacity"));
  expect(startOn(0, jobEntry(jobId(2)))).toEqual({ ok: true });
});

// holds: sched-priorities
test("preemption: a job that is not preemptible stays, whatever its state", () => {
  const cluster = new PlannedCluster();
  cluster.join("a", { gpuCount: 1 });
  cluster.submit(1, { resources: { gpu_count: 1, preemptible: false } });
  cluster.plan();
  cluster.submit(2, { resources: { gpu_count: 1, priority: 9 } });
  const preemptions = [{ victimId: jobId(1), forEntry: jobEntry(jobId(2)) }];
  const refused = [{ entry: jobEntry(jobId(2)), why: "victim" }];
  for (const phase of ["leased", "running"] as const) {
    const before = cluster.job(1);
    expect(plan(cluster, { preemptions })).toEqual({ ok: true, refused });
    expect(cluster.job(1)).toBe(before);
    cluster.report(1, phase);
  }
  expect(plan(cluster, { preemptions })).toEqual({ ok: true, refused });
  expect(cluster.job(1)).toMatchObject({ state: "running", preemptions: 0 });
});

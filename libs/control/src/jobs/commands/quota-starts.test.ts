import { jobEntry, type PlanEntry, replicaEntry } from "@heddle/scheduler/plan-entry";
import { expect, test } from "vitest";
import { PlannedCluster } from "../testing/planned-cluster.ts";
import { jobId, scheduledModel } from "../testing/specs.ts";
import { isEarlier } from "./task-reports.ts";

// Apply checks quotas and limits against all starts of a plan together, whatever the plan says.

const HOUR_MS = 3_600_000;
const LIMITS = { jobTimeoutMs: 2 * HOUR_MS, maxConcurrentJobs: 1_000 };

/** A node with four GPUs, and this many admitted jobs of one GPU. */
function clusterWith(jobs: number, quota?: object) {
  const cluster = new PlannedCluster();
  cluster.join("a");
  if (quota) cluster.do({ type: "project.set", name: "default", weight: 1, quota });
  for (let n = 1; n <= jobs; n++) cluster.submit(n);
  commit(cluster, { admitted: Array.from({ length: jobs }, (_, n) => jobId(n + 1)) });
  return cluster;
}

function commit(cluster: PlannedCluster, change: Record<string, unknown>) {
  return cluster.do({
    type: "plan.commit",
    basedOnIndex: 0,
    overcommitRatio: 1,
    acknowledgeMs: 1_000,
    limits: LIMITS,
    admitted: [],
    unsatisfiable: [],
    starts: [],
    preemptions: [],
    expired: [],
    ...change,
  });
}

/** Starts of these jobs, each on the device of its list position. */
const starts = (...entries: (PlanEntry | string)[]) =>
  entries.map((each, device) => ({
    entry: typeof each === "string" ? jobEntry(each) : each,
    placements: [{ nodeId: "a", devices: [device] }],
  }));

test("quota: starts of one plan count together", () => {
  const cluster = clusterWith(3, { gpuMilli: 2_000 });
  const reply = commit(cluster, { starts: starts(jobId(1), jobId(2), jobId(3)) });
  expect(reply).toEqual({ ok: true, refused: [{ entry: jobEntry(jobId(3)), why: "quota" }] });
  expect([1, 2, 3].map((n) => cluster.job(n).state)).toEqual(["scheduled", "scheduled", "pending"]);
});

test("quota: each start is charged its maximum hours", () => {
  const cluster = clusterWith(3, { gpuHours: 4 });
  const reply = commit(cluster, { starts: starts(jobId(1), jobId(2), jobId(3)) });
  expect(reply).toEqual({ ok: true, refused: [{ entry: jobEntry(jobId(3)), why: "quota" }] });
  const again = commit(cluster, { starts: starts("", "", jobId(3)).slice(2) });
  expect(again).toMatchObject({ refused: [{ why: "quota" }] });
});

test("limit: running jobs are bounded over all starts of a plan", () => {
  const cluster = clusterWith(3);
  const limits = { ...LIMITS, maxConcurrentJobs: 2 };
  const reply = commit(cluster, { limits, starts: starts(jobId(1), jobId(2), jobId(3)) });
  expect(reply).toEqual({
    ok: true,
    refused: [{ entry: jobEntry(jobId(3)), why: "concurrent_jobs" }],
  });
  const again = commit(cluster, { limits, starts: starts("", "", jobId(3)).slice(2) });
  expect(again).toMatchObject({ refused: [{ why: "concurrent_jobs" }] });
});

test("quota: replicas count with each other, and with the jobs of their project", () => {
  const cluster = clusterWith(1, { gpuMilli: 2_000 });
  for (const model of ["m", "n"]) cluster.do({ ...scheduledModel(model, 1, cluster.atMs) });
  const entries = [replicaEntry("m"), replicaEntry("n"), jobId(1)];
  expect(commit(cluster, { starts: starts(...entries) })).toEqual({
    ok: true,
    refused: [{ entry: jobEntry(jobId(1)), why: "quota" }],
  });
  const other = clusterWith(1, { gpuMilli: 1_000 });
  for (const model of ["m", "n"]) other.do({ ...scheduledModel(model, 1, other.atMs) });
  expect(commit(other, { starts: starts(replicaEntry("m"), replicaEntry("n")) })).toEqual({
    ok: true,
    refused: [{ entry: replicaEntry("n"), why: "quota" }],
  });
});

test("quota: hours that replicas may still use are charged with the jobs'", () => {
  const cluster = clusterWith(1, { gpuHours: 3 });
  cluster.do({ ...scheduledModel("m", 1, cluster.atMs) });
  expect(commit(cluster, { starts: starts(replicaEntry("m")) })).toEqual({ ok: true });
  const reply = commit(cluster, { starts: starts("", jobId(1)).slice(1) });
  expect(reply).toEqual({ ok: true, refused: [{ entry: jobEntry(jobId(1)), why: "quota" }] });
});

test("quota: hours of replicas that were placed by hand count", () => {
  const cluster = clusterWith(1, { gpuHours: 3 });
  const serving = [{ deployment: "by-hand", devices: [0] }];
  cluster.do({ type: "node.update", nodeId: "a", serving });
  const reply = commit(cluster, { starts: starts("", jobId(1)).slice(1) });
  expect(reply).toEqual({ ok: true, refused: [{ entry: jobEntry(jobId(1)), why: "quota" }] });
});

test("quota: a project's queue starts from its head, as many as its length allows", () => {
  const cluster = clusterWith(3, { queueLength: 2 });
  const late = commit(cluster, { starts: starts("", "", jobId(3)).slice(2) });
  expect(late).toEqual({
    ok: true,
    refused: [{ entry: jobEntry(jobId(3)), why: "queue_position" }],
  });
  expect(commit(cluster, { starts: starts(jobId(1), jobId(2)) })).toEqual({ ok: true });
  expect(commit(cluster, { starts: starts("", "", jobId(3)).slice(2) })).toEqual({ ok: true });
});

test("quota: holdings of other projects do not count", () => {
  const cluster = clusterWith(2, { gpuMilli: 1_000 });
  cluster.submit(3, { project: "other" });
  commit(cluster, { admitted: [jobId(3)] });
  const reply = commit(cluster, { starts: starts(jobId(1), jobId(3), jobId(2)) });
  expect(reply).toEqual({ ok: true, refused: [{ entry: jobEntry(jobId(2)), why: "quota" }] });
});

test("recovery: each replacement of a lost task is a new incarnation of its rank", () => {
  const cluster = new PlannedCluster();
  cluster.join("a");
  cluster.submit(1, { tasks: 2, resources: { gpu_count: 2 }, failure_tolerance: 1 });
  cluster.run(1);
  const incarnations = () =>
    [...cluster.control.state.tasks.values()].map(({ incarnation }) => incarnation);
  for (const round of [1, 2, 3]) {
    const { attempt } = cluster.job(1);
    // A crash by signal, but too late for a crash loop.
    cluster.atMs += 120_000;
    const exit = { reason: "NodeLost", signal: "SIGKILL", endedAtMs: cluster.atMs };
    const reports = [
      { jobId: jobId(1), attempt, rank: 1, incarnation: round - 1, phase: "exited", exit },
    ];
    cluster.do({ type: "tasks.report", nodeId: "a", reports });
    cluster.run(1);
    expect([cluster.job(1).attempt, incarnations()]).toEqual([1, [undefined, round]]);
  }
});

test("readings: of one attempt, the later arrival or the higher step wins", () => {
  const known = { atMs: 100, attempt: 1, rank: 0, step: 5 };
  expect(isEarlier({ ...known, atMs: 100, step: 1 }, known)).toBe(false);
  expect(isEarlier({ ...known, atMs: 99 }, known)).toBe(true);
  expect(isEarlier({ ...known, atMs: 99, step: 4 }, known)).toBe(true);
  expect(isEarlier({ ...known, atMs: 99, step: 6 }, known)).toBe(false);
  expect(isEarlier({ ...known, atMs: 99, rank: 1 }, known)).toBe(false);
  expect(isEarlier({ ...known, atMs: 99, incarnation: 1 }, known)).toBe(false);
  const { step: _, ...reading } = known;
  expect(isEarlier({ ...reading, atMs: 99 }, known)).toBe(true);
  expect(isEarlier({ ...reading, atMs: 99, rank: 1 }, known)).toBe(false);
});

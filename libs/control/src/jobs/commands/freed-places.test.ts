// holds: life-end-once

import { jobEntry, type PlanEntry, replicaEntry } from "@heddle/scheduler/plan-entry";
import { expect, test } from "vitest";
import { emptyState } from "../../apply.ts";
import { NEWEST_VERSION } from "../../cluster-version.ts";
import type { JobsCommand } from "../records/commands.ts";
import { PlannedCluster } from "../testing/planned-cluster.ts";
import { jobId, jobSpec, nodeOffer, scheduledModel } from "../testing/specs.ts";
import { JobsStateMachine } from "./jobs-state-machine.ts";

// Each place is released exactly once, and no place that is still held is forgotten.

const start = (id: string, device = 0) => startOf(jobEntry(id), device);

const startOf = (entry: PlanEntry, device = 0) => {
  return { entry, placements: [{ nodeId: "a", devices: [device] }] };
};

const planPart = {
  type: "plan.commit",
  basedOnIndex: 0,
  overcommitRatio: 1,
  acknowledgeMs: 1_000,
  admitted: [],
  unsatisfiable: [],
  starts: [],
  preemptions: [],
  expired: [],
};

const commit = (cluster: PlannedCluster, change: Record<string, unknown>) =>
  cluster.do({ ...planPart, ...change });

/** A node with one GPU, and two admitted jobs of one GPU. */
function oneGpu() {
  const cluster = new PlannedCluster();
  cluster.join("a", { gpuCount: 1 });
  for (const n of [1, 2]) cluster.submit(n);
  commit(cluster, { admitted: [jobId(1), jobId(2)] });
  return cluster;
}

const over = (id: string) => ({
  ok: true,
  refused: [{ entry: jobEntry(id), why: "over_capacity" }],
});

test("replica: a failed one releases its device once", () => {
  const cluster = oneGpu();
  cluster.do({ ...scheduledModel("m", 1, cluster.atMs) });
  expect(commit(cluster, { starts: [startOf(replicaEntry("m"))] })).toEqual({ ok: true });
  expect(commit(cluster, { starts: [start(jobId(1))] })).toEqual(over(jobId(1)));
  const place = { deployment: "m", nodeId: "a" };
  for (const _ of [1, 2]) {
    cluster.do({ type: "replica.fail", ...place, code: "model_failed", message: "no" });
  }
  expect(commit(cluster, { starts: [start(jobId(1))] })).toEqual({ ok: true });
  for (const _ of [1, 2]) cluster.do({ type: "replica.release", ...place });
  expect(commit(cluster, { starts: [start(jobId(2))] })).toEqual(over(jobId(2)));
});

test("task: its place is free once it has ended, however often that is reported", () => {
  const cluster = oneGpu();
  expect(commit(cluster, { starts: [start(jobId(1))] })).toEqual({ ok: true });
  for (const _ of [1, 2]) cluster.report(1, "exited", { endedAtMs: 1 });
  expect(commit(cluster, { starts: [start(jobId(2))] })).toEqual({ ok: true });
  cluster.submit(3);
  commit(cluster, { admitted: [jobId(3)] });
  expect(commit(cluster, { starts: [start(jobId(3))] })).toEqual(over(jobId(3)));
});

test("task: an end reported twice in one report frees one place", () => {
  const cluster = new PlannedCluster();
  cluster.join("a", { gpuCount: 2 });
  cluster.submit(1, { tasks: 2, resources: { gpu_count: 2 } });
  cluster.run(1);
  const exit = { reason: "NodeLost", endedAtMs: 1 };
  const report = { jobId: jobId(1), attempt: 1, rank: 0, phase: "exited", exit };
  cluster.do({ type: "tasks.report", nodeId: "a", reports: [report, report] });
  expect(cluster.job(1)).toMatchObject({ state: "retrying", liveTasks: 1, losses: 1 });
  for (const n of [2, 3]) cluster.submit(n);
  commit(cluster, { admitted: [jobId(2), jobId(3)] });
  const starts = [0, 1].map((device) => start(jobId(2 + device), device));
  expect(commit(cluster, { starts })).toEqual(over(jobId(3)));
});

test("lost node: its places are held until the leases there expire", () => {
  const cluster = oneGpu();
  cluster.run(1);
  const fencedAtMs = cluster.atMs + 50_000;
  cluster.do({ type: "node.lost", nodeIds: ["a"], fencedAtMs });
  cluster.do({ type: "node.lost", nodeIds: ["a"], fencedAtMs: fencedAtMs + 90_000 });
  cluster.do({ type: "clock.tick", atMs: fencedAtMs });
  expect(cluster.job(1).liveTasks).toBe(1);
  cluster.fence();
  expect(cluster.job(1).liveTasks).toBe(0);
  expect(cluster.control.state.nodes.get("a")).not.toHaveProperty("fencedAtMs");
});

test("lost node: tasks continue where it returns in time", () => {
  const cluster = new PlannedCluster();
  for (const id of ["a", "b"]) cluster.join(id, { gpuCount: 1 });
  cluster.submit(4, { tasks: 2, resources: { gpu_count: 2 }, failure_tolerance: 1 });
  cluster.run(4);
  cluster.do({ type: "node.lost", nodeIds: ["b"], fencedAtMs: cluster.atMs + 50_000 });
  cluster.join("b", { gpuCount: 1 });
  const { attempt } = cluster.job(4);
  const reports = [0, 1].map((rank) => ({ jobId: jobId(4), attempt, rank, phase: "running" }));
  for (const nodeId of ["a", "b"]) cluster.do({ type: "tasks.report", nodeId, reports });
  cluster.pass(60_000);
  expect(cluster.job(4)).toMatchObject({ state: "running", liveTasks: 2 });
});

/** Jobs and nodes in plain maps without hashes, which are slow for many nodes. */
function plainBoard() {
  const board = new JobsStateMachine(emptyState());
  let index = 0;
  const apply = (command: Record<string, unknown>, atMs = 1_000) => {
    const now = { index: ++index, atMs, version: NEWEST_VERSION };
    return board.apply({ ...command, atMs } as unknown as JobsCommand, now);
  };
  const join = (id: string, gpuCount = 0) =>
    apply({ type: "node.join", offer: nodeOffer(id, { gpuCount }) });
  return { apply, join, state: board.state };
}

test("nodes: the first lost of 20,000 is dropped, unless its tasks may be alive", () => {
  const { apply, join, state } = plainBoard();
  join("a", 1);
  apply({ type: "job.submit", jobId: jobId(1), spec: jobSpec({ name: "n1" }) });
  const planned = { starts: [start(jobId(1))], admitted: [jobId(1)] };
  expect(apply({ ...planPart, ...planned })).toEqual({ ok: true });
  for (let n = 1; n < 20_000; n++) join(`n${n}`);
  expect(join("new")).toMatchObject({ ok: false, code: "overloaded" });
  for (const [at, id] of ["a", "n7", "n3"].entries()) {
    apply({ type: "node.lost", nodeIds: [id], fencedAtMs: 900_000 }, 2_000 + at);
  }
  expect(join("new")).toEqual({ ok: true });
  const left = () => ["a", "n7", "n3"].map((id) => state.nodes.has(id));
  expect(left()).toEqual([true, false, true]);
  expect(join("newer")).toEqual({ ok: true });
  expect(left()).toEqual([true, false, false]);
  expect(join("newest")).toMatchObject({ code: "overloaded" });
});

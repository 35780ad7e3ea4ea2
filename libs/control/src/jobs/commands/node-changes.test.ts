import { jobEntry } from "@heddle/scheduler/plan-entry";
import { expect, test } from "vitest";
import { PlannedCluster } from "../testing/planned-cluster.ts";
import { jobId } from "../testing/specs.ts";

const GRACE_MS = 30_000;

/** A gang of two on the nodes `a` and `b` that tolerates a loss and has lost `b`. */
function recoveringGang() {
  const cluster = new PlannedCluster();
  for (const id of ["a", "b"]) cluster.join(id, { gpuCount: 1 });
  const checkpoint_config = { grace_seconds: GRACE_MS / 1_000 };
  cluster.submit(1, {
    tasks: 2,
    failure_tolerance: 1,
    resources: { gpu_count: 2 },
    checkpoint_config,
  });
  cluster.run(1);
  cluster.do({ type: "node.lost", nodeIds: ["b"], fencedAtMs: cluster.atMs + 150_000 });
  expect(cluster.job(1).state).toBe("recovering");
  return cluster;
}

/** Both tasks end after they were asked to leave. */
function bothLeave(cluster: PlannedCluster) {
  for (const { jobId: id, attempt, rank, nodeId } of [...cluster.control.state.tasks.values()]) {
    const exit = { endedAtMs: 1 };
    for (const phase of ["stopping", "exited"]) {
      const reports = [{ jobId: id, attempt, rank, phase, exit }];
      cluster.do({ type: "tasks.report", nodeId, reports });
    }
  }
}

// holds: life-drain-lost-node
test("drain: one ordered while the node was lost starts at its return, time reduced", () => {
  const cluster = recoveringGang();
  const byMs = cluster.atMs + 20_000;
  cluster.do({ type: "node.drain", nodeId: "b", byMs });
  expect(cluster.job(1).state).toBe("recovering");
  cluster.join("b", { gpuCount: 1 });
  const leaving = { why: "drain" };
  expect(cluster.job(1)).toMatchObject({ state: "checkpointing", leaving, dueMs: byMs });
  bothLeave(cluster);
  expect(cluster.job(1)).toMatchObject({ state: "pending", losses: 1, preemptions: 1 });
  expect(cluster.control.state.nodes.get("b")?.state).toBe("drained");
});

test("drain: one cancelled while the node was lost evicts nothing", () => {
  const cluster = recoveringGang();
  cluster.do({ type: "node.drain", nodeId: "b", byMs: cluster.atMs + 20_000 });
  cluster.do({ type: "node.resume", nodeId: "b" });
  cluster.join("b", { gpuCount: 1 });
  expect(cluster.job(1).state).toBe("recovering");
  cluster.report(1, "running");
  const reports = [{ jobId: jobId(1), attempt: 1, rank: 1, phase: "running" }];
  cluster.do({ type: "tasks.report", nodeId: "b", reports });
  expect(cluster.job(1)).toMatchObject({ state: "running", attempt: 1 });
});

// holds: life-recovering-drain
test("drain: a recovering job has its grace period for a checkpoint", () => {
  const cluster = recoveringGang();
  cluster.do({ type: "job.request", jobId: jobId(1), request: "suspend" });
  const dueMs = cluster.atMs + GRACE_MS;
  expect(cluster.job(1)).toMatchObject({ state: "checkpointing", dueMs });
  cluster.atMs = dueMs;
  cluster.do({ type: "clock.tick" });
  expect(cluster.job(1)).toMatchObject({ state: "suspended", liveTasks: 2 });
});

// holds: life-unhealthy-device
test("devices: a fault report that reaches the log after a newer recovery is ignored", () => {
  const cluster = new PlannedCluster();
  cluster.join("a", { gpuCount: 1 });
  const at = (reading: number, incarnation = "i") => ({ incarnation, reading });
  const unhealthy = { type: "node.quarantine", nodeId: "a", device: 0, why: "Xid 79" };
  const quarantined = () => cluster.control.state.nodes.get("a")?.quarantined.length;
  cluster.do({ ...unhealthy, asOf: at(7) });
  cluster.do({ type: "node.resume", nodeId: "a", healthyDevices: [0], healthyAsOf: at(8) });
  // The leader proposed it before it had applied the resume.
  cluster.do({ ...unhealthy, asOf: at(7) });
  expect(quarantined()).toBe(0);
  cluster.do({ ...unhealthy, asOf: at(8) });
  expect(quarantined()).toBe(1);
  cluster.do({ type: "node.resume", nodeId: "a", healthyDevices: [0], healthyAsOf: at(9) });
  cluster.do({ ...unhealthy, asOf: at(1, "the next process") });
  expect(quarantined()).toBe(1);
});

test("devices: a node that resumes with none healed keeps its last healthy reading", () => {
  const cluster = new PlannedCluster();
  cluster.join("a", { gpuCount: 1 });
  const at = (reading: number) => ({ incarnation: "i", reading });
  const resume = (healthyDevices: number[], reading: number) =>
    cluster.do({ type: "node.resume", nodeId: "a", healthyDevices, healthyAsOf: at(reading) });
  const unhealthy = (reading: number) => {
    const quarantine = { type: "node.quarantine", nodeId: "a", device: 0, why: "Xid 79" };
    cluster.do({ ...quarantine, asOf: at(reading) });
    return cluster.control.state.nodes.get("a")?.quarantined.length;
  };
  expect(unhealthy(1)).toBe(1);
  resume([0], 2);
  cluster.do({ type: "node.drain", nodeId: "a", byMs: cluster.atMs });
  resume([0], 9);
  expect(cluster.control.state.nodes.get("a")?.state).toBe("ready");
  expect(unhealthy(3)).toBe(1);
});

// holds: sched-task-places
test("task places: a node at its number of tasks is full, however little they ask for", () => {
  const cluster = new PlannedCluster();
  for (const id of ["a", "b"]) cluster.join(id, { maxTasks: 2 });
  const tiny = (tasks: number) => ({ tasks, resources: { cpu_cores: 0.001, memory_gb: 0.001 } });
  cluster.submit(1, tiny(3));
  cluster.run(1);
  expect(cluster.job(1).state).toBe("running");
  cluster.submit(2, tiny(2));
  const [waiting] = cluster.plan().plan.pending;
  const places = { reason: "InsufficientTaskPlaces", requested: 2, free: 1, limit: 4 };
  expect(waiting?.blockers).toMatchObject([places]);
  // A plan of a leader that does not see the limit is refused.
  const [first] = [...cluster.control.state.tasks.values()];
  const placements = [{ nodeId: first?.nodeId, devices: [] }];
  cluster.submit(3, tiny(1));
  const forced = cluster.do({
    type: "plan.commit",
    basedOnIndex: 0,
    overcommitRatio: 1,
    acknowledgeMs: 1_000,
    limits: { jobTimeoutMs: 86_400_000, maxConcurrentJobs: 1_000 },
    admitted: [jobId(3)],
    unsatisfiable: [],
    preemptions: [],
    expired: [],
    starts: [{ entry: jobEntry(jobId(3)), placements, backfilled: false }],
  });
  expect(forced).toMatchObject({ refused: [{ entry: jobEntry(jobId(3)), why: "over_capacity" }] });
  cluster.report(1, "exited", { endedAtMs: 1 });
  cluster.run(2);
  expect(cluster.job(2).state).toBe("running");
});

test("task places: a node without a limit takes any number", () => {
  const cluster = new PlannedCluster();
  cluster.join("a");
  cluster.submit(1, { tasks: 300, resources: { cpu_cores: 0.3, memory_gb: 0.3 } });
  cluster.run(1);
  expect(cluster.job(1).state).toBe("running");
  expect(cluster.join("b", { maxTasks: 0 })).toMatchObject({ ok: false, code: "invalid_value" });
});

test.each([
  ["cpuMilli", -1],
  ["cpuMilli", 0.5],
  ["memoryMib", Number.NaN],
  ["localSsdGb", 2 ** 53],
  ["ioOperationsPerSec", -0.5],
  ["networkMbps", Number.POSITIVE_INFINITY],
  ["gpuCount", -1],
  ["gpuCount", 1.5],
  ["gpuCount", 1e9],
  ["maxTasks", 1.5],
])("offer: a node with %s %d is refused", (name, value) => {
  const cluster = new PlannedCluster();
  expect(cluster.join("a", { [name]: value })).toMatchObject({ ok: false, code: "invalid_value" });
  expect(cluster.control.state.nodes.size).toBe(0);
  expect(cluster.join("a", { [name]: 2 })).toEqual({ ok: true });
});

test.each(["", "a b", "ä", "x".repeat(129)])("offer: the node id %j is refused", (id) => {
  const cluster = new PlannedCluster();
  expect(cluster.join(id)).toMatchObject({ ok: false, code: "invalid_value" });
});

test("nodes: at their limit the one lost first makes room, if it holds nothing", () => {
  const cluster = new PlannedCluster();
  const { nodes } = cluster.control.state;
  const lose = (id: string) =>
    cluster.do({ type: "node.lost", nodeIds: [id], fencedAtMs: cluster.atMs + 1_000 });
  cluster.join("busy");
  cluster.submit(1);
  cluster.run(1);
  for (let n = 1; n < 20_000; n++) cluster.join(`n${n}`, { gpuCount: 0 });
  expect(cluster.join("one-more")).toMatchObject({ ok: false, code: "overloaded" });
  for (const id of ["busy", "n7", "n3"]) lose(id);
  expect(cluster.join("one-more")).toEqual({ ok: true });
  expect([nodes.has("busy"), nodes.has("n7"), nodes.has("n3")]).toEqual([true, false, true]);
  expect(cluster.join("and-another")).toEqual({ ok: true });
  expect(nodes.has("n3")).toBe(false);
  expect(cluster.join("too-many")).toMatchObject({ ok: false, code: "overloaded" });
  // A known node joins as before.
  expect(cluster.join("n9")).toEqual({ ok: true });
});

test("tasks: a waiting job is divided again when a node changes the type of its GPUs", () => {
  const cluster = new PlannedCluster();
  cluster.join("a", { gpuType: "H100", gpuCount: 2 });
  cluster.join("b", { gpuType: "A100", gpuCount: 4 });
  cluster.submit(1, { resources: { gpu_count: 8, gpu_type: "H100" } });
  expect(cluster.job(1).tasks).toBe(4);
  cluster.join("b", { gpuType: "H100", gpuCount: 4 });
  expect(cluster.job(1).tasks).toBe(2);
});

// holds: life-silent-losses
test("silent losses: a job that its nodes do not survive ends with the reason", () => {
  const cluster = new PlannedCluster();
  for (const id of ["a", "b"]) cluster.join(id);
  cluster.submit(1, { resources: { cpu_cores: 1 } });
  for (let loss = 1; loss <= 6; loss++) {
    cluster.pass(60_000);
    cluster.run(1);
    const [task] = [...cluster.control.state.tasks.values()];
    cluster.do({ type: "node.lost", nodeIds: [task?.nodeId], fencedAtMs: cluster.atMs + 1_000 });
    cluster.pass(2_000);
    cluster.join(task?.nodeId ?? "");
    const { jobId: id, attempt, rank, nodeId } = task!;
    const exit = { reason: "NodeLost" as const, endedAtMs: 1 };
    const reports = [{ jobId: id, attempt, rank, phase: "exited" as const, exit }];
    cluster.do({ type: "tasks.report", nodeId, reports });
  }
  const { state, failure } = cluster.job(1);
  expect(state).toBe("failed");
  expect(failure?.message).toContain("lost 6 times in a row");
});

import { jobEntry } from "@heddle/scheduler/plan-entry";
import { expect, test } from "vitest";
import { PlannedCluster } from "../testing/planned-cluster.ts";
import { jobId } from "../testing/specs.ts";
import { schedulingInput } from "./scheduling-input.ts";

test("scheduling input: the largest node's GPUs divide a job, again when a node joins", () => {
  const cluster = new PlannedCluster();
  cluster.join("a", { gpuCount: 2 });
  cluster.submit(1, { resources: { gpu_count: 8, cpu_cores: 9, memory_gb: 16 } });
  expect(cluster.job(1).tasks).toBe(4);
  cluster.join("b", { gpuCount: 4 });
  expect(cluster.job(1).tasks).toBe(2);
  const [queued] = cluster.view().queue;
  expect(queued?.request).toMatchObject({ gpus: 4, gpuMilli: 1_000 });
  expect(queued?.request.scalars).toMatchObject({ cpuMilli: 4_500, memoryMib: 7_630 });
});

test("scheduling input: one plan admits and starts an accepted job, which then runs", () => {
  const cluster = new PlannedCluster();
  cluster.join("a");
  cluster.submit(1, { resources: { gpu_count: 0.5 } });
  cluster.run(1);
  expect(cluster.job(1)).toMatchObject({ state: "running", attempt: 1 });
  const { snapshot, queue } = cluster.view();
  expect(queue).toEqual([]);
  expect(snapshot.running).toMatchObject([{ id: jobId(1), tasks: 1, evicting: undefined }]);
});

// holds: sched-shared-storage
test("scheduling input: shared storage goes in queue order; others see what is missing", () => {
  const cluster = new PlannedCluster();
  cluster.join("a");
  cluster.do({ type: "setting.put", name: "shared_storage_gb", value: 100 });
  cluster.submit(1, { resources: { shared_storage_gb: 60 } });
  cluster.submit(2, { resources: { shared_storage_gb: 50 } });
  cluster.submit(3, { resources: { shared_storage_gb: 50.5, priority: 1 } });
  const { plan } = cluster.plan();
  expect(plan.starts.map(({ entry }) => entry)).toEqual([jobEntry(jobId(3))]);
  const blocker = { reason: "InsufficientSharedStorage", resource: "shared_storage_gb" };
  const behind = { reason: "PriorityBehind", resource: "jobs_ahead" };
  expect(plan.pending).toMatchObject([
    {
      entry: jobEntry(jobId(1)),
      blockers: [{ ...blocker, requested: 60, free: 49.5, limit: 100 }],
    },
    {
      entry: jobEntry(jobId(2)),
      blockers: [{ ...blocker, requested: 50, free: 49.5, limit: 100 }, behind],
    },
  ]);
});

test("scheduling input: a running job holds its shared storage; others hold none", () => {
  const cluster = new PlannedCluster();
  cluster.join("a");
  cluster.do({ type: "setting.put", name: "shared_storage_gb", value: 100 });
  cluster.submit(1, { resources: { shared_storage_gb: 60 } });
  cluster.submit(2);
  cluster.run(1);
  const { running } = cluster.view().snapshot;
  expect(running.map(({ id, shared }) => [id, shared])).toEqual([
    [jobId(1), { storageMb: 60_000, places: new Map() }],
    [jobId(2), undefined],
  ]);
});

// holds: sched-shared-storage
test.each([
  ["a dependency", { dependencies: [jobId(9)] }],
  ["its project's quota", { project: "p", resources: { gpu_count: 1, shared_storage_gb: 8 } }],
])("shared storage: a job that waits for %s holds none", (_, waits) => {
  const cluster = new PlannedCluster();
  cluster.join("a");
  cluster.do({ type: "setting.put", name: "shared_storage_gb", value: 10 });
  cluster.do({ type: "project.set", name: "p", weight: 1, quota: { gpuMilli: 0 } });
  cluster.submit(1, { resources: { shared_storage_gb: 8 }, ...waits });
  cluster.submit(2, { resources: { shared_storage_gb: 8 } });
  expect(cluster.plan().plan.starts.map(({ entry }) => entry)).toEqual([jobEntry(jobId(2))]);
  expect(cluster.job(2).state).toBe("scheduled");
});

// holds: sched-shared-storage
test("scheduling input: apply refuses a start without enough shared storage left", () => {
  const cluster = new PlannedCluster();
  cluster.join("a");
  cluster.do({ type: "setting.put", name: "shared_storage_gb", value: 10 });
  for (const n of [1, 2]) cluster.submit(n, { resources: { shared_storage_gb: 6 } });
  const placements = [{ nodeId: "a", devices: [] }];
  const starts = [1, 2].map((n) => ({ entry: jobEntry(jobId(n)), placements }));
  const admitted = [jobId(1), jobId(2)];
  const reply = cluster.do({
    type: "plan.commit",
    overcommitRatio: 1,
    acknowledgeMs: 1,
    admitted,
    expired: [],
    unsatisfiable: [],
    preemptions: [],
    starts,
  });
  expect(reply).toMatchObject({ refused: [{ entry: jobEntry(jobId(2)), why: "shared_storage" }] });
  expect(cluster.control.jobs.holdings.sharedStorageMb).toBe(6_000);
});

test("scheduling input: only nodes with the executor that a job needs take it", () => {
  const cluster = new PlannedCluster();
  cluster.join("a");
  cluster.submit(1, { container_image: "x", command: undefined });
  expect(cluster.plan().plan.starts).toEqual([]);
  cluster.join("b", { executors: ["container"] });
  expect(cluster.plan().plan.starts[0]?.placements[0]?.nodeId).toBe("b");
});

test("scheduling input: replicas take the devices that they hold, and count as serving", () => {
  const cluster = new PlannedCluster();
  cluster.join("a");
  const serving = [{ deployment: "m", devices: [0, 1, 2] }];
  cluster.do({ type: "node.update", nodeId: "a", serving });
  cluster.submit(1, { resources: { gpu_count: 2 } });
  expect(cluster.plan().plan.starts).toEqual([]);
  expect(cluster.view().snapshot.running).toMatchObject([{ kind: "serving", tasks: 1 }]);
  const placements = [{ nodeId: "a", devices: [2, 3] }];
  cluster.do({
    type: "plan.commit",
    overcommitRatio: 1,
    acknowledgeMs: 1,
    admitted: [],
    expired: [],
    unsatisfiable: [],
    preemptions: [],
    starts: [{ entry: jobEntry(jobId(1)), placements }],
  });
  expect(cluster.job(1).state).toBe("pending");
});

// holds: life-tolerance
test("scheduling input: a tolerated lost task restarts in its attempt once fenced", () => {
  const cluster = new PlannedCluster();
  cluster.join("a", { gpuCount: 1 });
  cluster.join("b", { gpuCount: 1 });
  cluster.submit(1, { tasks: 2, failure_tolerance: 1, resources: { gpu_count: 2 } });
  cluster.run(1);
  cluster.join("c", { gpuCount: 1 });
  cluster.do({ type: "node.lost", nodeIds: ["a"], fencedAtMs: cluster.atMs + 150_000 });
  expect(cluster.job(1)).toMatchObject({ state: "recovering", attempt: 1, losses: 1 });
  expect(cluster.view().queue).toEqual([]);
  cluster.pass(151_000);
  expect(cluster.plan().plan.starts).toMatchObject([{ placements: [{ nodeId: "c" }] }]);
  const incarnations = () =>
    [...cluster.control.state.tasks.values()].map(({ nodeId, incarnation }) => [
      nodeId,
      incarnation ?? 0,
    ]);
  expect(incarnations().sort()).toEqual([
    ["b", 0],
    ["c", 1],
  ]);
  // A late report of the replaced task does not change its successor.
  const late = { jobId: jobId(1), attempt: 1, rank: 0, incarnation: 0, phase: "exited" };
  cluster.do({ type: "tasks.report", nodeId: "c", reports: [late, { ...late, rank: 1 }] });
  expect(cluster.job(1).state).toBe("recovering");
  cluster.report(1, "leased");
  cluster.report(1, "running");
  expect(cluster.job(1)).toMatchObject({ state: "running", attempt: 1, liveTasks: 2 });
});

// holds: jobs-gpu-hours-outage
test("scheduling input: without a master, usage counts at most the time of the leases", () => {
  const cluster = new PlannedCluster();
  cluster.join("a");
  cluster.submit(1, { project: "p", resources: { gpu_count: 4 } });
  cluster.run(1);
  cluster.pass(3_600_000);
  const used = () => {
    const at = { index: 0, nowMs: cluster.atMs };
    const [project] = schedulingInput(cluster.control.state, cluster.control.jobs, at).snapshot
      .projects;
    return project!;
  };
  const before = used();
  expect(before.usedGpuHours).toBeCloseTo(4, 2);
  cluster.atMs += 100 * 3_600_000;
  const after = used();
  expect(after.usedGpuHours - before.usedGpuHours).toBeLessThanOrEqual((4 * 300) / 3_600);
  expect(after.usage.gpuMilliMs).toBeLessThan(before.usage.gpuMilliMs);
  cluster.pass(60_000);
  cluster.report(1, "exited", { endedAtMs: cluster.atMs });
  expect(used().usedGpuHours - before.usedGpuHours).toBeLessThan(0.5);
});

// holds: jobs-gpu-hours
test("scheduling input: a project's GPU-hours are what its tasks held until now", () => {
  const cluster = new PlannedCluster();
  cluster.join("a");
  cluster.submit(1, { project: "p", resources: { gpu_count: 2 } });
  cluster.run(1);
  const started = cluster.control.state.projects.get("p")!.usage.asOfMs;
  cluster.pass(started + 1_800_000 - cluster.atMs);
  const at = { index: 0, nowMs: started + 1_800_000 };
  const { snapshot } = schedulingInput(cluster.control.state, cluster.control.jobs, at);
  expect(snapshot.projects).toMatchObject([{ project: "p", usedGpuHours: 1 }]);
  cluster.report(1, "exited", { endedAtMs: cluster.atMs });
  expect(cluster.job(1).state).toBe("succeeded");
  expect(cluster.control.state.projects.get("p")!.usage.heldGpuMilli).toBe(0);
});

// holds: life-drain
test("scheduling input: a drain checkpoints the jobs of its node, and no others", () => {
  const cluster = new PlannedCluster();
  cluster.join("a", { gpuCount: 1 });
  cluster.join("b", { gpuCount: 1 });
  for (const n of [1, 2]) cluster.submit(n, { resources: { gpu_count: 1 } });
  cluster.run(1);
  cluster.report(2, "leased");
  cluster.report(2, "running");
  const [first] = [...cluster.control.state.tasks.values()];
  cluster.do({ type: "node.drain", nodeId: first!.nodeId, byMs: cluster.atMs + 60_000 });
  const leaves = first!.jobId === jobId(1) ? 1 : 2;
  expect(cluster.job(leaves)).toMatchObject({ state: "checkpointing", leaving: { why: "drain" } });
  expect(cluster.job(3 - leaves).state).toBe("running");
});

import { expect, test } from "vitest";
import { schedulingInput } from "./scheduling-input.ts";
import { PlannedCluster } from "./testing/planned-cluster.ts";
import { jobId } from "./testing/specs.ts";

test("a job is split over as few tasks as the largest node's GPUs allow, anew when one comes", () => {
  const cluster = new PlannedCluster();
  cluster.join("a", { gpuCount: 2 });
  cluster.submit(1, { resources: { gpu_count: 8, cpu_cores: 9, memory_gb: 16 } });
  expect(cluster.job(1).tasks).toBe(4);
  cluster.join("b", { gpuCount: 4 });
  expect(cluster.job(1).tasks).toBe(2);
  const [queued] = cluster.view().input.queue;
  expect(queued?.request).toMatchObject({ gpus: 4, gpuMilli: 1_000 });
  expect(queued?.request.scalars).toMatchObject({ cpuMilli: 4_500, memoryMib: 7_630 });
});

test("an accepted job is admitted and started by one plan, and a started one is running", () => {
  const cluster = new PlannedCluster();
  cluster.join("a");
  cluster.submit(1, { resources: { gpu_count: 0.5 } });
  cluster.run(1);
  expect(cluster.job(1)).toMatchObject({ state: "running", attempt: 1 });
  const { snapshot, queue } = cluster.view().input;
  expect(queue).toEqual([]);
  expect(snapshot.running).toMatchObject([{ id: jobId(1), tasks: 1, evicting: undefined }]);
});

test("shared storage goes to the oldest, and the others are told what is missing", () => {
  const cluster = new PlannedCluster();
  cluster.join("a");
  cluster.do({ type: "setting.put", name: "shared_storage_gb", value: 100 });
  cluster.submit(1, { resources: { shared_storage_gb: 60 } });
  cluster.submit(2, { resources: { shared_storage_gb: 50 } });
  const { plan, withheld } = cluster.plan();
  expect(plan.starts.map((start) => start.jobId)).toEqual([jobId(1)]);
  const blocker = { reason: "InsufficientMemory", resource: "shared_storage_gb" };
  expect(withheld).toEqual([
    { jobId: jobId(2), blockers: [{ ...blocker, requested: 50, free: 40, limit: 100 }] },
  ]);
});

test("only nodes with the executor that a job needs take it", () => {
  const cluster = new PlannedCluster();
  cluster.join("a");
  cluster.submit(1, { container_image: "x", command: undefined });
  expect(cluster.plan().plan.starts).toEqual([]);
  cluster.join("b", { executors: ["container"] });
  expect(cluster.plan().plan.starts[0]?.placements[0]?.nodeId).toBe("b");
});

test("replicas that hold devices take them from jobs and count as serving", () => {
  const cluster = new PlannedCluster();
  cluster.join("a");
  const serving = [{ deployment: "m", devices: [0, 1, 2] }];
  cluster.do({ type: "node.update", nodeId: "a", serving });
  cluster.submit(1, { resources: { gpu_count: 2 } });
  expect(cluster.plan().plan.starts).toEqual([]);
  expect(cluster.view().input.snapshot.running).toMatchObject([{ kind: "serving", tasks: 1 }]);
  const placements = [{ nodeId: "a", devices: [2, 3] }];
  cluster.do({
    ...{ type: "plan.commit", overcommitRatio: 1, acknowledgeMs: 1, admitted: [], expired: [] },
    ...{ unsatisfiable: [], preemptions: [], starts: [{ jobId: jobId(1), placements }] },
  });
  expect(cluster.job(1).state).toBe("pending");
});

test("a lost task within the tolerance is placed anew in the same attempt once it is fenced", () => {
  const cluster = new PlannedCluster();
  cluster.join("a", { gpuCount: 1 });
  cluster.join("b", { gpuCount: 1 });
  cluster.submit(1, { tasks: 2, failure_tolerance: 1, resources: { gpu_count: 2 } });
  cluster.run(1);
  cluster.join("c", { gpuCount: 1 });
  cluster.do({ type: "node.lost", nodeIds: ["a"], fencedAtMs: cluster.atMs + 150_000 });
  expect(cluster.job(1)).toMatchObject({ state: "recovering", attempt: 1, losses: 1 });
  expect(cluster.view().input.queue).toEqual([]);
  cluster.do({ type: "clock.tick", atMs: cluster.atMs + 151_000 });
  cluster.atMs += 151_000;
  expect(cluster.plan().plan.starts).toMatchObject([{ placements: [{ nodeId: "c" }] }]);
  const incarnations = () =>
    [...cluster.control.state.tasks.values()].map(({ nodeId, incarnation }) => [
      ...[nodeId, incarnation ?? 0],
    ]);
  expect(incarnations().sort()).toEqual([
    ["b", 0],
    ["c", 1],
  ]);
  // A late word of the task that was replaced is none of its successor's.
  const late = { jobId: jobId(1), attempt: 1, rank: 0, incarnation: 0, phase: "exited" };
  cluster.do({ type: "tasks.report", nodeId: "c", reports: [late, { ...late, rank: 1 }] });
  expect(cluster.job(1).state).toBe("recovering");
  cluster.report(1, "leased");
  cluster.report(1, "running");
  expect(cluster.job(1)).toMatchObject({ state: "running", attempt: 1, liveTasks: 2 });
});

test("while no master is there nothing counts as used but what the leases may have held", () => {
  const cluster = new PlannedCluster();
  cluster.join("a");
  cluster.submit(1, { project: "p", resources: { gpu_count: 4 } });
  cluster.run(1);
  cluster.pass(3_600_000);
  const used = () => {
    const at = { index: 0, nowMs: cluster.atMs };
    const [project] = schedulingInput(cluster.control.state, cluster.control.jobs, at).input
      .snapshot.projects;
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

test("a project's GPU-hours are what its tasks held, up to the moment", () => {
  const cluster = new PlannedCluster();
  cluster.join("a");
  cluster.submit(1, { project: "p", resources: { gpu_count: 2 } });
  cluster.run(1);
  const started = cluster.control.state.projects.get("p")!.usage.asOfMs;
  cluster.pass(started + 1_800_000 - cluster.atMs);
  const at = { index: 0, nowMs: started + 1_800_000 };
  const { input } = schedulingInput(cluster.control.state, cluster.control.jobs, at);
  expect(input.snapshot.projects).toMatchObject([{ project: "p", usedGpuHours: 1 }]);
  cluster.report(1, "exited", { endedAtMs: cluster.atMs });
  expect(cluster.job(1).state).toBe("succeeded");
  expect(cluster.control.state.projects.get("p")!.usage.heldGpuMilli).toBe(0);
});

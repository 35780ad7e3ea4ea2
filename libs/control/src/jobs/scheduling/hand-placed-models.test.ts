// holds: sched-hand-placed

import { replicaEntry } from "@heddle/scheduler/plan-entry";
import { describe, expect, test } from "vitest";
import { PlannedCluster } from "../testing/planned-cluster.ts";
import { jobId, modelOnDevice, scheduledModel } from "../testing/specs.ts";
import { runsWithoutGpu, wantedReplicas } from "./replica-claims.ts";

const places = ({ control }: PlannedCluster) =>
  [...control.state.replicas.values()].map(({ nodeId, devices }) => `${nodeId}:${devices}`).sort();

const isPlaced = ({ control }: PlannedCluster) => wantedReplicas(control.state).has("m");

describe("a model that names a device by hand", () => {
  const deploy = (cluster: PlannedCluster, device: string, replicas: number | "every-worker" = 1) =>
    cluster.do({ ...modelOnDevice("m", device, replicas, cluster.atMs) });

  test("claims that device, which no job is given then", () => {
    const cluster = new PlannedCluster();
    cluster.join("a", { gpuCount: 2 });
    deploy(cluster, "1");
    cluster.submit(1, { resources: { gpu_count: 2 } });
    cluster.submit(2);
    cluster.plan();
    cluster.plan();
    expect(places(cluster)).toEqual(["a:1"]);
    expect(cluster.job(1).state).toBe("pending");
    const [task] = cluster.control.state.tasks.values();
    expect(task).toMatchObject({ jobId: jobId(2), devices: [0] });
  });

  test("preempts the job on its device and no other", () => {
    const cluster = new PlannedCluster();
    cluster.join("a", { gpuCount: 2 });
    for (const n of [1, 2]) cluster.submit(n);
    for (const n of [1, 2]) cluster.run(n);
    const [there] = [...cluster.control.state.tasks.values()].filter(({ devices: [at] }) => at);
    deploy(cluster, "1");
    expect(cluster.plan().plan.preemptions).toMatchObject([
      { victimId: there!.jobId, forEntry: replicaEntry("m") },
    ]);
  });

  test("goes to a node that has the device, and names what is missing where none has it", () => {
    const cluster = new PlannedCluster();
    cluster.join("cpu", { gpuCount: 0, gpuType: "" });
    cluster.join("a", { gpuCount: 2 });
    deploy(cluster, "3");
    expect(cluster.plan().plan.pending).toMatchObject([
      { entry: replicaEntry("m"), blockers: [{ resource: "gpu" }, { resource: "gpu_index" }] },
    ]);
    cluster.join("b", { gpuCount: 4 });
    cluster.plan();
    expect(places(cluster)).toEqual(["b:3"]);
  });

  test("on every worker has a replica on each that has the device, also on later ones", () => {
    const cluster = new PlannedCluster();
    deploy(cluster, "1", "every-worker");
    expect(cluster.view().queue).toHaveLength(1);
    cluster.join("cpu", { gpuCount: 0, gpuType: "" });
    cluster.join("one", { gpuCount: 1 });
    for (const id of ["a", "b"]) cluster.join(id, { gpuCount: 2 });
    for (let cycle = 0; cycle < 2; cycle++) cluster.plan();
    expect(places(cluster)).toEqual(["a:1", "b:1"]);
    expect(cluster.view().queue).toEqual([]);
    cluster.join("c", { gpuCount: 2 });
    cluster.plan();
    expect(places(cluster)).toEqual(["a:1", "b:1", "c:1"]);
    cluster.do({ type: "node.quarantine", nodeId: "b", device: 1, why: "Xid 79" });
    expect([...wantedReplicas(cluster.control.state).get("m")!.keys()].sort()).toEqual(["a", "c"]);
    expect(cluster.view().queue).toEqual([]);
  });

  test("on the CPU claims nothing and is placed without the scheduler", () => {
    const cluster = new PlannedCluster();
    cluster.join("a", { gpuCount: 2 });
    deploy(cluster, "cpu");
    expect(cluster.view().queue).toEqual([]);
    expect(isPlaced(cluster)).toBe(false);
  });
});

test("or_cpu models: ask for GPUs once a node with any has joined", () => {
  const cluster = new PlannedCluster();
  const runsOnCpu = () => runsWithoutGpu(cluster.control.state, "m");
  cluster.do({ ...scheduledModel("m", 1, cluster.atMs, { gpuMemoryGb: 28, orCpu: true }) });
  // Before any node has joined it waits: it would be loaded twice.
  expect([runsOnCpu(), isPlaced(cluster)]).toEqual([false, true]);
  cluster.join("cpu", { gpuCount: 0, gpuType: "" });
  expect([runsOnCpu(), isPlaced(cluster)]).toEqual([true, false]);
  expect(cluster.view().queue).toEqual([]);
  cluster.join("small", { gpuCount: 1, gpuMemoryGb: 16 });
  expect([runsOnCpu(), isPlaced(cluster)]).toEqual([false, true]);
  expect(cluster.plan().plan.pending).toMatchObject([
    { entry: replicaEntry("m"), blockers: [{ resource: "gpu" }, { resource: "gpu_memory" }] },
  ]);
  cluster.join("large", { gpuCount: 1 });
  cluster.plan();
  expect(places(cluster)).toEqual(["large:0"]);
  // The GPUs of a lost node are expected back.
  const fencedAtMs = cluster.atMs + 1_000;
  cluster.do({ type: "node.lost", nodeIds: ["small", "large"], fencedAtMs });
  expect([runsOnCpu(), isPlaced(cluster)]).toEqual([false, true]);
});

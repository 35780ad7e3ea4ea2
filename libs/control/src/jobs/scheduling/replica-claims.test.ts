// holds: sched-serving-quota

import { jobEntry, replicaEntry } from "@heddle/scheduler/plan-entry";
import { expect, test } from "vitest";
import { PlannedCluster } from "../testing/planned-cluster.ts";
import { jobId, scheduledModel } from "../testing/specs.ts";
import { failedReplicas, wantedReplicas } from "./replica-claims.ts";

const one = { gpu_count: 1 };

/** A node with one GPU that a preemptible job has. */
function busyNode(): PlannedCluster {
  const cluster = new PlannedCluster();
  cluster.join("a", { gpuCount: 1 });
  cluster.submit(1, { resources: one });
  cluster.run(1);
  return cluster;
}

const deploy = (cluster: PlannedCluster, replicas = 1) =>
  cluster.do({ ...scheduledModel("m", replicas, cluster.atMs) });

const places = ({ control }: PlannedCluster) =>
  [...control.state.replicas.values()].map(({ nodeId, devices }) => [nodeId, devices]);

test("replica claims: one preempts a job for a GPU and holds it until it is released", () => {
  const cluster = busyNode();
  deploy(cluster);
  expect(cluster.plan().plan.preemptions).toMatchObject([
    { victimId: jobId(1), forEntry: replicaEntry("m") },
  ]);
  expect(cluster.job(1)).toMatchObject({
    state: "checkpointing",
    leaving: { why: "preempt", forEntry: replicaEntry("m") },
  });
  expect(cluster.plan().plan).toMatchObject({ starts: [], preemptions: [] });
  cluster.report(1, "stopping");
  cluster.report(1, "exited", { endedAtMs: 1 });
  expect(cluster.job(1)).toMatchObject({ state: "pending", preemptions: 1 });
  cluster.plan();
  expect(places(cluster)).toEqual([["a", [0]]]);
  expect(cluster.plan().plan.starts).toEqual([]);
  cluster.do({ type: "model.remove", id: "m" });
  expect(wantedReplicas(cluster.control.state).size).toBe(0);
  // No node has reported yet that the replica is gone from the device.
  expect(cluster.plan().plan.starts).toEqual([]);
  cluster.do({ type: "replica.release", deployment: "m", nodeId: "a" });
  cluster.run(1);
  expect(cluster.job(1)).toMatchObject({ state: "running", attempt: 2 });
});

test("replica claims: a permanently failed replica frees its device and takes no other", () => {
  const cluster = busyNode();
  deploy(cluster, 1);
  cluster.plan();
  cluster.report(1, "stopping");
  cluster.report(1, "exited", { endedAtMs: 1 });
  cluster.plan();
  expect(places(cluster)).toEqual([["a", [0]]]);
  const failure = { code: "model_failed", message: "it has the wrong sha256" };
  cluster.do({ type: "replica.fail", deployment: "m", nodeId: "a", ...failure });
  cluster.run(1);
  expect(cluster.job(1)).toMatchObject({ state: "running", attempt: 2 });
  expect(cluster.plan().plan).toMatchObject({ starts: [], preemptions: [] });
  const { usage } = cluster.control.state.projects.get("default")!;
  expect(usage.heldGpuMilli).toBe(1_000);
  expect(failedReplicas(cluster.control.state, "m")).toMatchObject([{ failure, devices: [] }]);
  cluster.do({ type: "node.lost", nodeIds: ["a"], fencedAtMs: cluster.atMs + 1_000 });
  expect(failedReplicas(cluster.control.state, "m")).toHaveLength(1);
  cluster.do({ type: "model.remove", id: "m" });
  expect(cluster.control.state.replicas.size).toBe(0);
  cluster.join("b", { gpuCount: 1 });
  deploy(cluster);
  cluster.plan();
  expect(places(cluster)).toEqual([["b", [0]]]);
});

test("replica claims: a non-preemptible job keeps its GPU, as does one of a higher qos", () => {
  for (const own of [{ preemptible: false }, { qos_level: "guaranteed" }]) {
    const cluster = new PlannedCluster();
    cluster.join("a", { gpuCount: 1 });
    cluster.submit(1, { resources: { ...one, ...own } });
    cluster.run(1);
    deploy(cluster);
    expect(cluster.plan().plan.preemptions).toEqual([]);
  }
});

test("replica claims: two go on two nodes, and a lost node's is placed again", () => {
  const cluster = new PlannedCluster();
  cluster.join("a", { gpuCount: 4 });
  cluster.join("b", { gpuCount: 4 });
  deploy(cluster, 2);
  cluster.plan();
  cluster.plan();
  expect(
    places(cluster)
      .map(([node]) => node)
      .sort(),
  ).toEqual(["a", "b"]);
  expect(cluster.view().queue).toEqual([]);
  cluster.do({ type: "node.lost", nodeIds: ["a"], fencedAtMs: cluster.atMs + 1_000 });
  expect(places(cluster).map(([node]) => node)).toEqual(["b"]);
  cluster.join("c", { gpuCount: 4 });
  cluster.plan();
  expect(
    places(cluster)
      .map(([node]) => node)
      .sort(),
  ).toEqual(["b", "c"]);
});

/** A replica that serves on one of two nodes; `nodeId` names that one. */
function servingReplica() {
  const cluster = new PlannedCluster();
  for (const id of ["a", "b"]) cluster.join(id, { gpuCount: 1 });
  deploy(cluster);
  cluster.plan();
  const [replica] = [...cluster.control.state.replicas.values()];
  const nodeId = replica!.nodeId;
  cluster.do({ type: "replica.ready", deployment: "m", nodeId });
  const wanted = () => [...(wantedReplicas(cluster.control.state).get("m")?.keys() ?? [])].sort();
  const state = () => cluster.control.state.nodes.get(nodeId)?.state;
  return { cluster, nodeId, other: nodeId === "a" ? "b" : "a", wanted, state };
}

// holds: engine-drain-replacement
test("replica claims: one leaves a draining node once another serves; the drain ends", () => {
  const { cluster, nodeId, other, wanted, state } = servingReplica();
  cluster.do({ type: "node.drain", nodeId, byMs: cluster.atMs + 600_000 });
  expect(wanted()).toEqual([nodeId]);
  cluster.plan();
  expect(wanted()).toEqual(["a", "b"]);
  expect(state()).toBe("draining");
  cluster.do({ type: "replica.ready", deployment: "m", nodeId: other });
  expect(wanted()).toEqual([other]);
  expect(state()).toBe("draining");
  cluster.do({ type: "replica.release", deployment: "m", nodeId });
  expect(state()).toBe("drained");
});

// holds: engine-drain-replacement
test("replica claims: a draining node's last one goes at the deadline, at once if down", () => {
  const { cluster, nodeId, other, wanted, state } = servingReplica();
  cluster.do({ type: "node.quarantine", nodeId: other, device: 0, why: "Xid 79" });
  cluster.do({ type: "node.drain", nodeId, byMs: cluster.atMs + 60_000 });
  cluster.plan();
  cluster.pass(50_000);
  expect(wanted()).toEqual([nodeId]);
  cluster.pass(10_000);
  expect(wanted()).toEqual([]);
  // Its device is its own until it is gone, also where the drain is taken back.
  cluster.do({ type: "node.resume", nodeId });
  cluster.plan();
  expect(wanted()).toEqual([]);
  cluster.do({ type: "replica.release", deployment: "m", nodeId });
  cluster.plan();
  expect(wanted()).toEqual([nodeId]);
  expect(state()).toBe("ready");
  cluster.do({ type: "node.drain", nodeId, byMs: cluster.atMs + 60_000 });
  expect(wanted()).toEqual([]);
});

test("replica claims: one on a quarantined device is placed elsewhere", () => {
  const cluster = new PlannedCluster();
  cluster.join("a", { gpuCount: 2 });
  cluster.join("b", { gpuCount: 2 });
  deploy(cluster);
  cluster.plan();
  const [place] = cluster.control.state.replicas.values();
  const { nodeId, devices } = place!;
  cluster.do({ type: "node.quarantine", nodeId, device: devices[0], why: "Xid 79" });
  expect(wantedReplicas(cluster.control.state).get("m")).toEqual(new Map());
  cluster.plan();
  const other = nodeId === "a" ? "b" : "a";
  expect([...wantedReplicas(cluster.control.state).get("m")!.keys()]).toEqual([other]);
});

test("replica claims: a replica's devices count as used GPU-hours of its project", () => {
  const cluster = new PlannedCluster();
  cluster.join("a", { gpuCount: 2 });
  deploy(cluster);
  cluster.plan();
  cluster.pass(3_600_000);
  expect(cluster.view().snapshot.projects).toMatchObject([{ project: "default", usedGpuHours: 1 }]);
  cluster.do({ type: "replica.release", deployment: "m", nodeId: "a" });
  const { usage } = cluster.control.state.projects.get("default")!;
  expect(usage.heldGpuMilli).toBe(0);
});

test("replicas and jobs share one quota: neither passes it with the other", () => {
  const cluster = new PlannedCluster();
  cluster.join("a", { gpuCount: 4 });
  cluster.do({ type: "project.set", name: "default", weight: 1, quota: { gpuMilli: 2_000 } });
  cluster.submit(1, { resources: one });
  cluster.run(1);
  deploy(cluster);
  cluster.plan();
  cluster.submit(2, { resources: one });
  const { plan } = cluster.plan();
  expect(plan.pending).toMatchObject([
    { entry: jobEntry(jobId(2)), blockers: [{ reason: "QuotaExceeded", free: 0, limit: 2_000 }] },
  ]);
});

// holds: sched-stale-plan
test("replica claims: apply refuses starts beyond later limits, and says why", () => {
  const cluster = new PlannedCluster();
  cluster.join("a", { gpuCount: 4 });
  cluster.submit(1, { resources: one });
  cluster.do({ type: "project.set", name: "default", weight: 1, quota: { gpuHours: 1 } });
  const limits = { jobTimeoutMs: 86_400_000, maxConcurrentJobs: 1_000 };
  const placements = [{ nodeId: "a", devices: [0] }];
  const plan = {
    type: "plan.commit",
    overcommitRatio: 1,
    limits,
    acknowledgeMs: 1_000,
    admitted: [jobId(1)],
    unsatisfiable: [],
    preemptions: [],
    expired: [],
    starts: [{ entry: jobEntry(jobId(1)), placements }],
  };
  expect(cluster.do(plan)).toEqual({
    ok: true,
    refused: [{ entry: jobEntry(jobId(1)), why: "quota" }],
  });
  cluster.do({ type: "project.set", name: "default", weight: 1, quota: { queueLength: 0 } });
  expect(cluster.do(plan)).toMatchObject({ refused: [{ why: "queue_position" }] });
  cluster.do({ type: "project.set", name: "default", weight: 1, quota: {} });
  const none = { ...plan, limits: { ...limits, maxConcurrentJobs: 0 } };
  expect(cluster.do(none)).toMatchObject({ refused: [{ why: "concurrent_jobs" }] });
  const wrong = { ...plan, starts: [{ entry: jobEntry(jobId(1)), placements: [] }] };
  expect(cluster.do(wrong)).toMatchObject({ refused: [{ why: "partial_gang" }] });
  expect(cluster.do(plan)).toEqual({ ok: true });
  expect(cluster.do(plan)).toMatchObject({ refused: [{ why: "not_waiting" }] });
});

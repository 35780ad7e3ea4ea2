// holds: shard-gpus

import type { LlamaDeployment } from "@heddle/contracts/engine";
import { replicaEntry } from "@heddle/scheduler/plan-entry";
import { expect, test } from "vitest";
import { PLACES_STAGES } from "../../cluster-version.ts";
import type { ControlCommand } from "../../command.ts";
import { ReplicatedControl } from "../../replicated-control.ts";
import type { ReplicaResources } from "../records/records.ts";
import { PlannedCluster } from "../testing/planned-cluster.ts";
import { jobId, scheduledModel } from "../testing/specs.ts";
import { dividesGpus, stageDevices, undividedOnGpus } from "./replica-claims.ts";

const GIGABYTE = 1e9;
const limits = { jobTimeoutMs: 86_400_000, maxConcurrentJobs: 1_000 };

type Registration = Extract<ControlCommand, { type: "model.register" }>;

/** Registers the model m, each stage of which needs a GPU. */
function deploy(
  cluster: PlannedCluster,
  change: Partial<LlamaDeployment> = { placement: { mode: "sharded" } },
  sizeBytes?: number,
  resources: Partial<ReplicaResources> = {},
) {
  const made = scheduledModel("m", 1, 0, resources) as Registration;
  const spec = { ...made.deployment.spec, ...change } as LlamaDeployment;
  const weights = { ...spec.weights, sizeBytes };
  cluster.do({ type: "model.remove", id: "m" });
  cluster.do({ ...made, deployment: { ...made.deployment, spec: { ...spec, weights } } });
}

/** Places stages, each on the first GPU of its node if no other is given. */
function place(cluster: PlannedCluster, ...nodes: (string | [string, number])[]) {
  const places = nodes.map((node) => {
    const [nodeId, device] = typeof node === "string" ? [node, 0] : node;
    return { nodeId, devices: [device] };
  });
  return cluster.do({ type: "replica.place", deployment: "m", places, limits });
}

/** Has stages queue for a GPU on each of as many of these nodes. */
function claim(cluster: PlannedCluster, stages: number, ...nodes: string[]) {
  const claimed = { stages, memoryBytes: 1, nodes };
  return cluster.do({ type: "replica.claim", deployment: "m", claim: claimed });
}

/** The job's tasks have ended. */
function end(cluster: PlannedCluster, n: number) {
  cluster.report(n, "stopping");
  cluster.report(n, "exited", { endedAtMs: 1 });
}

/** The nodes on which the job's tasks are. */
const nodesOf = ({ control }: PlannedCluster, n: number) =>
  [...control.state.tasks.values()]
    .filter((task) => task.jobId === jobId(n))
    .map(({ nodeId }) => nodeId);

const held = ({ control }: PlannedCluster) =>
  [...control.state.replicas.values()].map(({ nodeId, devices }) => `${nodeId}:${devices}`);
const isDivided = ({ control }: PlannedCluster) => dividesGpus(control.state, "m");

test("stages on GPUs: a replica's get theirs together, and others do not get these", () => {
  const cluster = new PlannedCluster();
  for (const id of ["a", "b", "c"]) cluster.join(id, { gpuCount: 1 });
  deploy(cluster);
  expect(cluster.view().queue).toEqual([]);
  expect(place(cluster, "a", "b")).toEqual({ ok: true });
  cluster.submit(1, { tasks: 2, resources: { gpu_count: 2 } });
  expect(cluster.plan().plan.starts).toEqual([]);
  expect(held(cluster)).toEqual(["a:0", "b:0"]);
  for (const nodeId of ["a", "b"]) cluster.do({ type: "replica.release", deployment: "m", nodeId });
  cluster.run(1);
  expect(cluster.job(1).state).toBe("running");
});

test("stages on GPUs: none gets any where one cannot have its own", () => {
  const cluster = new PlannedCluster();
  for (const id of ["a", "b", "c"]) cluster.join(id, { gpuCount: 1 });
  deploy(cluster);
  cluster.submit(1, { resources: { gpu_count: 1 } });
  cluster.run(1);
  const [busy = ""] = [...cluster.control.state.tasks.values()].map(({ nodeId }) => nodeId);
  const free = ["a", "b", "c"].filter((id) => id !== busy);
  expect(place(cluster, ...free, busy)).toMatchObject({ ok: false, code: "conflict" });
  expect(place(cluster, [free[0]!, 1])).toMatchObject({ ok: false, code: "conflict" });
  expect(place(cluster, free[0]!, free[0]!)).toMatchObject({ code: "invalid_value" });
  expect(place(cluster)).toMatchObject({ ok: false });
  expect(held(cluster)).toEqual([]);
  expect(place(cluster, free[0]!)).toEqual({ ok: true });
  expect(place(cluster, free[0]!)).toMatchObject({ message: expect.stringContaining("already") });
  cluster.do({ type: "project.set", name: "default", weight: 1, quota: { gpuMilli: 2_000 } });
  expect(place(cluster, free[1]!)).toMatchObject({ message: expect.stringContaining("quota") });
});

test("stages on GPUs: later jobs take no GPU for which stages queue", () => {
  const cluster = new PlannedCluster();
  for (const id of ["a", "b"]) cluster.join(id, { gpuCount: 1 });
  const one = { resources: { gpu_count: 1, preemptible: false } };
  for (const n of [1, 2]) cluster.submit(n, one);
  for (const n of [1, 2]) cluster.run(n);
  deploy(cluster);
  expect(claim(cluster, 2, "a", "b")).toEqual({ ok: true });
  for (const n of [3, 4]) cluster.submit(n, one);
  end(cluster, 1);
  expect(cluster.plan().plan.starts).toEqual([]);
  expect(held(cluster)).toEqual([]);
  end(cluster, 2);
  cluster.plan();
  expect(held(cluster).sort()).toEqual(["a:0", "b:0"]);
  const { replicas, stageClaims } = cluster.control.state;
  expect([...replicas.values()].every(({ stage }) => stage)).toBe(true);
  expect(stageClaims.size).toBe(0);
  expect([3, 4].map((n) => cluster.job(n).state)).toEqual(["pending", "pending"]);
});

test("stages on GPUs: preemptible jobs give way to all stages of a claim, or none", () => {
  const cluster = new PlannedCluster();
  cluster.join("a", { gpuCount: 1 });
  cluster.submit(1, { resources: { gpu_count: 1 } });
  cluster.run(1);
  cluster.join("b", { gpuCount: 2 });
  deploy(cluster);
  claim(cluster, 2, "b", "gone");
  // The node has GPUs for two, but each stage has a node to itself.
  expect(cluster.plan().plan).toMatchObject({ starts: [], preemptions: [] });
  claim(cluster, 2, "b", "a");
  expect(cluster.plan().plan.preemptions).toMatchObject([{ forEntry: replicaEntry("m") }]);
  cluster.do({ type: "model.remove", id: "m" });
  expect(cluster.control.state.stageClaims.size).toBe(0);
});

test("stages on GPUs: a claim names nodes without places of the deployment, once each", () => {
  const cluster = new PlannedCluster();
  for (const id of ["a", "b", "c"]) cluster.join(id, { gpuCount: 2 });
  expect(claim(cluster, 1, "a")).toMatchObject({ ok: false, code: "conflict" });
  deploy(cluster);
  for (const bad of [
    [2, "a"],
    [0, "a"],
    [1.5, "a", "b"],
    [2, "a", "a"],
  ] as const) {
    const [stages, ...nodes] = bad;
    expect(claim(cluster, stages, ...nodes)).toMatchObject({ code: "invalid_value" });
  }
  const many = Array.from({ length: 65 }, (_, at) => `n${at}`);
  expect(claim(cluster, 1, ...many)).toMatchObject({ code: "invalid_value" });
  place(cluster, "a");
  claim(cluster, 1, "a", "c");
  cluster.plan();
  expect(held(cluster)).toEqual(["a:0", "c:0"]);
  claim(cluster, 1, "b");
  cluster.do({ type: "replica.claim", deployment: "m" });
  cluster.plan();
  expect(held(cluster)).toEqual(["a:0", "c:0"]);
});

test("stages on GPUs: a stage without a place keeps its GPU, and gets its place back", () => {
  const cluster = new PlannedCluster();
  for (const id of ["a", "b"]) cluster.join(id, { gpuCount: 2 });
  deploy(cluster);
  const { control } = cluster;
  const serving = [{ deployment: "m#b/0", devices: [1] }];
  cluster.do({ type: "node.update", nodeId: "a", serving });
  expect(stageDevices(control.state, control.jobs, "m")("a")).toEqual([1]);
  expect(place(cluster, ["a", 1], ["b", 7])).toMatchObject({ ok: false });
  expect(control.state.nodes.get("a")?.serving).toEqual(serving);
  cluster.submit(1, { resources: { gpu_count: 2 } });
  cluster.run(1);
  expect(nodesOf(cluster, 1)).toEqual(["b"]);
  expect(place(cluster, ["a", 1])).toEqual({ ok: true });
  expect(control.state.nodes.get("a")?.serving).toEqual([]);
});

test("stages on GPUs: a node gives free and healthy ones, of the kind asked for", () => {
  const cluster = new PlannedCluster();
  cluster.join("a", { gpuCount: 4 });
  cluster.join("b", { gpuCount: 4, gpuType: "T4", gpuMemoryGb: 16 });
  deploy(cluster, undefined, undefined, { gpuCount: 2, gpuMemoryGb: 24 });
  const { control } = cluster;
  const on = (nodeId: string) => stageDevices(control.state, control.jobs, "m")(nodeId);
  expect([on("a"), on("b"), on("none")]).toEqual([[0, 1], [], []]);
  cluster.do({ type: "node.quarantine", nodeId: "a", device: 1, why: "Xid 79" });
  expect(on("a")).toEqual([0, 2]);
  const places = [{ nodeId: "a", devices: [0, 2] }];
  cluster.do({ type: "replica.place", deployment: "m", places, limits });
  // A drain changes nothing as long as the stage is there.
  cluster.do({ type: "node.drain", nodeId: "a", byMs: cluster.atMs + 60_000 });
  expect(on("a")).toEqual([0, 2]);
  cluster.do({ type: "node.quarantine", nodeId: "a", device: 2, why: "Xid 79" });
  expect(on("a")).toEqual([]);
});

test("stages on GPUs: `auto` divides what no node's GPUs have the memory for", () => {
  const cluster = new PlannedCluster();
  cluster.join("a", { gpuCount: 1, gpuMemoryGb: 16 });
  cluster.join("b", { gpuCount: 1, gpuMemoryGb: 16 });
  deploy(cluster, {}, 16 * GIGABYTE);
  expect([isDivided(cluster), cluster.view().queue.length]).toEqual([false, 1]);
  expect(undividedOnGpus(cluster.control.state, "m")).toContain("fit the GPUs of one node");
  deploy(cluster, {}, 17 * GIGABYTE);
  expect([isDivided(cluster), cluster.view().queue.length]).toEqual([true, 0]);
  deploy(cluster, {}, 17 * GIGABYTE, { gpuCount: 2 });
  expect(isDivided(cluster)).toBe(false);
  deploy(cluster, { options: { gpuLayers: 4 } }, 17 * GIGABYTE);
  expect(isDivided(cluster)).toBe(false);
  deploy(cluster, {});
  expect(isDivided(cluster)).toBe(false);
  cluster.join("other", { gpuCount: 1, gpuMemoryGb: 80, gpuType: "L40" });
  deploy(cluster, {}, 17 * GIGABYTE, { gpuTypes: ["H100"] });
  expect(isDivided(cluster)).toBe(true);
});

test("stages on GPUs: a divided model stays so when a larger node joins", () => {
  const cluster = new PlannedCluster();
  for (const id of ["a", "b"]) cluster.join(id, { gpuCount: 1, gpuMemoryGb: 16 });
  deploy(cluster, {}, 20 * GIGABYTE);
  place(cluster, "a", "b");
  cluster.join("large", { gpuCount: 1, gpuMemoryGb: 80 });
  expect(isDivided(cluster)).toBe(true);
  for (const nodeId of ["a", "b"]) cluster.do({ type: "replica.release", deployment: "m", nodeId });
  expect(isDivided(cluster)).toBe(false);
});

test("stages on GPUs: earlier cluster versions divide none", () => {
  const cluster = new PlannedCluster(new ReplicatedControl());
  cluster.control.apply({ type: "version.raise", atMs: 0, version: PLACES_STAGES - 1 }, 1);
  for (const id of ["a", "b"]) cluster.join(id, { gpuCount: 1 });
  deploy(cluster);
  expect(isDivided(cluster)).toBe(false);
  expect(place(cluster, "a", "b")).toMatchObject({ ok: false, code: "conflict" });
  cluster.plan();
  expect(held(cluster)).toEqual(["a:0"]);
});

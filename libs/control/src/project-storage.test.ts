// holds: storage-quota

import { expect, test } from "vitest";
import { BOUNDS_STORAGE } from "./cluster-version.ts";
import { PlannedCluster } from "./jobs/testing/planned-cluster.ts";
import { jobId } from "./jobs/testing/specs.ts";
import { storedBytesOf } from "./project-storage.ts";
import { ReplicatedControl } from "./replicated-control.ts";

const KEY = "aaaaaaaa";
const quotaOf = (storageBytes: number, name = "default") => ({
  type: "project.set",
  name,
  weight: 1,
  quota: { storageBytes },
});

function put(cluster: PlannedCluster, id: string, bytes: number, project?: string) {
  const named = { kind: "file", id, owner: KEY, digest: "0".repeat(64), bytes };
  const document = project === undefined ? named : { ...named, project };
  return cluster.do({ type: "document.put", document });
}

const drop = (cluster: PlannedCluster, id: string) =>
  cluster.do({ type: "document.delete", kind: "file", id, owner: KEY });

const artifact = (bytes: number) => ({ name: "out", bytes, sha256: "0".repeat(64) });
const left = (bytes: number) => ({ endedAtMs: 1, artifacts: [artifact(bytes)] });
const useOf = ({ control }: PlannedCluster, project = "default") =>
  control.jobs.storage.useOf(project);

/** A cluster whose key is of the project `vision`. */
function withKey(control?: ReplicatedControl): PlannedCluster {
  const cluster = new PlannedCluster(control);
  const key = { id: KEY, name: "k", hash: "0".repeat(64), scopes: ["*"], models: [], limits: {} };
  cluster.do({ type: "key.create", key: { ...key, project: "vision", createdAtMs: 1 } });
  return cluster;
}

/** One node, on which job 1 runs. */
function running(quota?: number, change: Record<string, unknown> = {}): PlannedCluster {
  const cluster = new PlannedCluster();
  if (quota !== undefined) cluster.do(quotaOf(quota));
  cluster.join("a");
  cluster.submit(1, change);
  cluster.run(1);
  if (cluster.job(1).state !== "running") cluster.run(1);
  expect(cluster.job(1).state).toBe("running");
  return cluster;
}

test("storage quota: documents are kept up to its last byte and no further", () => {
  const cluster = withKey();
  cluster.do(quotaOf(100, "p"));
  expect(put(cluster, "one", 60, "p").ok).toBe(true);
  const refused = put(cluster, "two", 41, "p");
  const message = expect.stringMatching(
    /^the project p keeps 60 bytes, this needs 41 more, and its storage quota is 100; delete/,
  );
  expect(refused).toEqual({ ok: false, code: "insufficient_quota", message });
  expect(put(cluster, "two", 40, "p").ok).toBe(true);
  expect(put(cluster, "one", 61, "p").ok).toBe(false);
  expect(put(cluster, "one", 20, "p").ok).toBe(true);
  expect(put(cluster, "other", 500, "q").ok).toBe(true);
  drop(cluster, "two");
  expect([useOf(cluster, "p"), useOf(cluster, "q")]).toEqual([
    { documents: 20, artifacts: 0, checkpoints: 0 },
    { documents: 500, artifacts: 0, checkpoints: 0 },
  ]);
});

test("storage quota: a document stays in the project in which it was made", () => {
  const cluster = withKey();
  put(cluster, "one", 10, "p");
  put(cluster, "one", 30, "q");
  put(cluster, "one", 20);
  expect([useOf(cluster, "p").documents, useOf(cluster, "q").documents]).toEqual([20, 0]);
  put(cluster, "old", 7);
  expect(useOf(cluster, "vision").documents).toBe(7);
  expect([...cluster.control.state.documents.values()].map(({ project }) => project)).toEqual([
    "p",
    undefined,
  ]);
});

test("storage quota: artifacts beyond it fail their task for good and are dropped", () => {
  const cluster = running(100, { retry_limit: 3 });
  cluster.report(1, "exited", left(101));
  const { state, failure } = cluster.job(1);
  expect([state, failure?.reason, useOf(cluster).artifacts]).toEqual([
    "failed",
    "StorageExceeded",
    0,
  ]);
  expect(failure?.message).toContain("its artifacts were not kept: the project default keeps 0");
  const [task] = cluster.control.state.tasks.values();
  expect(task?.exit).not.toHaveProperty("artifacts");
});

test("storage quota: artifacts within it count until their job is forgotten", () => {
  const cluster = running(100);
  cluster.report(1, "exited", left(100));
  expect([cluster.job(1).state, useOf(cluster).artifacts]).toEqual(["succeeded", 100]);
  cluster.pass(8 * 24 * 3_600_000);
  expect(cluster.control.state.jobs.has(jobId(1))).toBe(false);
  expect(storedBytesOf(useOf(cluster))).toBe(0);
});

test("storage quota: the tasks of one report count together", () => {
  const cluster = running(100, { tasks: 2, resources: { gpu_count: 2 } });
  const reports = [0, 1].map((rank) => {
    return { jobId: jobId(1), attempt: 1, rank, phase: "exited", exit: left(60) };
  });
  cluster.do({ type: "tasks.report", nodeId: "a", reports });
  expect(cluster.job(1).failure).toMatchObject({ reason: "StorageExceeded", rank: 1 });
  expect(useOf(cluster).artifacts).toBe(60);
});

test("storage quota: a full project gets no further jobs", () => {
  const cluster = running(100);
  put(cluster, "one", 100, "default");
  const refusal = { ok: false, code: "insufficient_quota", param: "project" };
  expect(cluster.submit(2)).toMatchObject(refusal);
  expect(cluster.submit(3, { project: "other" }).ok).toBe(true);
  drop(cluster, "one");
  expect(cluster.submit(2).ok).toBe(true);
});

test("storage quota: checkpoints count while their job keeps them", () => {
  const cluster = running();
  const report = (bytes: number, atMs: number) => {
    const checkpoint = { name: "step-1", attempt: 1, rank: 0, atMs, bytes };
    const entries = [{ jobId: jobId(1), attempt: 1, checkpoint }];
    cluster.do({ type: "jobs.progress", entries });
  };
  report(40, 1);
  report(70, 2);
  expect(useOf(cluster).checkpoints).toBe(70);
  cluster.report(1, "exited", left(1));
  expect(useOf(cluster)).toEqual({ documents: 0, artifacts: 1, checkpoints: 0 });
});

test("storage quota: earlier versions keep their rules", () => {
  const before = new ReplicatedControl();
  before.state.cluster.set("version", BOUNDS_STORAGE - 1);
  const cluster = withKey(before);
  cluster.do(quotaOf(1, "p"));
  expect(put(cluster, "one", 10, "p").ok).toBe(true);
  expect(put(cluster, "one", 10, "q").ok).toBe(true);
  expect([...before.state.documents.values()]).toMatchObject([{ project: "q" }]);
  cluster.do(quotaOf(1));
  expect(cluster.submit(1).ok).toBe(true);
});

test("storage quota: a restored state counts the same", async () => {
  const cluster = running(1_000);
  cluster.report(1, "exited", left(30));
  put(cluster, "one", 20, "default");
  const restored = new ReplicatedControl();
  await restored.restore(cluster.control.snapshot());
  const expected = { documents: 20, artifacts: 30, checkpoints: 0 };
  expect([restored.jobs.storage.useOf("default"), useOf(cluster)]).toEqual([expected, expected]);
});

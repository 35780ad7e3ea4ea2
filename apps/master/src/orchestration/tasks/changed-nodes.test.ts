// holds: scale-dispatch

import { PlannedCluster } from "@heddle/control/jobs/testing/planned-cluster";
import { jobId } from "@heddle/control/jobs/testing/specs";
import { expect, test } from "vitest";
import { ChangedNodes } from "./changed-nodes.ts";

/** A cluster of two nodes with a job on each. */
function twoJobs() {
  const cluster = new PlannedCluster();
  for (const id of ["a", "b"]) cluster.join(id, { gpuCount: 1 });
  for (const n of [1, 2]) cluster.submit(n);
  cluster.plan();
  const tasks = [...cluster.control.state.tasks.values()];
  const nodeOf = (n: number) => tasks.find((task) => task.jobId === jobId(n))?.nodeId ?? "";
  return { cluster, nodeOf };
}

test("changed nodes: all at first, then those of jobs that changed, each once", () => {
  const { cluster, nodeOf } = twoJobs();
  const changed = new ChangedNodes(cluster.control);
  expect(changed.take()).toBeUndefined();
  expect(changed.take()).toEqual(new Set());
  cluster.report(1, "leased");
  expect(changed.take()).toEqual(new Set([nodeOf(1)]));
  cluster.do({ type: "job.request", jobId: jobId(2), request: "cancel" });
  changed.add("c");
  expect(changed.take()).toEqual(new Set([nodeOf(2), "c"]));
  expect(changed.take()).toEqual(new Set());
});

test("changed nodes: a job's change names the nodes of all its tasks", () => {
  const cluster = new PlannedCluster();
  for (const id of ["a", "b", "c"]) cluster.join(id, { gpuCount: 1 });
  cluster.submit(1, { tasks: 2, resources: { gpu_count: 2 } });
  const changed = new ChangedNodes(cluster.control);
  changed.take();
  cluster.plan();
  const nodes = [...cluster.control.state.tasks.values()].map(({ nodeId }) => nodeId);
  expect(nodes).toHaveLength(2);
  expect(changed.take()).toEqual(new Set(nodes));
  const [nodeId = ""] = nodes;
  const reports = [{ jobId: jobId(1), attempt: 1, rank: 0, phase: "leased" }];
  cluster.do({ type: "tasks.report", nodeId, reports });
  expect(changed.take()).toEqual(new Set(nodes));
});

test("changed nodes: all after the state was replaced", async () => {
  const { cluster, nodeOf } = twoJobs();
  const changed = new ChangedNodes(cluster.control);
  changed.take();
  await cluster.control.restore([...cluster.control.snapshot()]);
  cluster.report(1, "leased");
  expect(changed.take()).toBeUndefined();
  cluster.report(2, "leased");
  expect(changed.take()).toEqual(new Set([nodeOf(2)]));
});

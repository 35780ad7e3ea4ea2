// holds: scale-dispatch

import { PlannedCluster } from "@heddle/control/jobs/testing/planned-cluster";
import { jobId } from "@heddle/control/jobs/testing/specs";
import { expect, test } from "vitest";
import { ChangedNodes } from "./changed-nodes.ts";
import { NodeTasks } from "./node-tasks.ts";
import { statusKey } from "./task-link.ts";

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

/** The status key of a first attempt's task. */
function keyOf(n: number, rank = 0): string {
  return statusKey({ jobId: jobId(n), attempt: 1, rank, incarnation: undefined });
}

test("changed nodes: all at first, then tasks of jobs that changed, each once", () => {
  const { cluster, nodeOf } = twoJobs();
  const changed = new ChangedNodes(cluster.control);
  expect(changed.take()).toBeUndefined();
  expect(changed.take()).toEqual(new Map());
  cluster.report(1, "leased");
  expect(changed.take()).toEqual(new Map([[nodeOf(1), new Set([keyOf(1)])]]));
  cluster.do({ type: "job.request", jobId: jobId(2), request: "cancel" });
  changed.add("c");
  expect(changed.take()).toEqual(
    new Map<string, unknown>([
      ["c", "all"],
      [nodeOf(2), new Set([keyOf(2)])],
    ]),
  );
  expect(changed.take()).toEqual(new Map());
});

test("changed nodes: a node that changed itself has all of its tasks compared", () => {
  const { cluster, nodeOf } = twoJobs();
  const changed = new ChangedNodes(cluster.control);
  changed.take();
  changed.addTask(nodeOf(1), keyOf(1));
  cluster.do({ type: "node.drain", nodeId: nodeOf(1), byMs: cluster.atMs + 60_000 });
  changed.addTask(nodeOf(1), keyOf(2));
  expect(changed.take()).toEqual(new Map([[nodeOf(1), "all"]]));
});

test("tasks by node: sets are joined, and all tasks are more than any set", () => {
  const tasks = new NodeTasks();
  tasks.add("a", new Set(["1", "2"]));
  tasks.addOne("a", "3");
  tasks.add("b", "all");
  tasks.add("b", new Set(["1"]));
  tasks.addOne("b", "1");
  expect([tasks.has("a"), tasks.has("c")]).toEqual([true, false]);
  expect(tasks.take("a")).toEqual(new Set(["1", "2", "3"]));
  expect(tasks.take("a")).toEqual(new Set());
  expect(tasks.takeAll()).toEqual(new Map([["b", "all"]]));
  expect(tasks.takeAll()).toEqual(new Map());
});

test("changed nodes: a job's change names all its tasks", () => {
  const cluster = new PlannedCluster();
  for (const id of ["a", "b", "c"]) cluster.join(id, { gpuCount: 1 });
  cluster.submit(1, { tasks: 2, resources: { gpu_count: 2 } });
  const changed = new ChangedNodes(cluster.control);
  changed.take();
  cluster.plan();
  const tasks = [...cluster.control.state.tasks.values()];
  const both = new Map(tasks.map(({ nodeId, rank }) => [nodeId, new Set([keyOf(1, rank)])]));
  expect(both.size).toBe(2);
  expect(changed.take()).toEqual(both);
  const nodeId = tasks.find(({ rank }) => rank === 0)?.nodeId ?? "";
  const reports = [{ jobId: jobId(1), attempt: 1, rank: 0, phase: "leased" }];
  cluster.do({ type: "tasks.report", nodeId, reports });
  expect(changed.take()).toEqual(both);
});

test("changed nodes: all after the state was replaced", async () => {
  const { cluster, nodeOf } = twoJobs();
  const changed = new ChangedNodes(cluster.control);
  changed.take();
  await cluster.control.restore([...cluster.control.snapshot()]);
  cluster.report(1, "leased");
  expect(changed.take()).toBeUndefined();
  cluster.report(2, "leased");
  expect(changed.take()).toEqual(new Map([[nodeOf(2), new Set([keyOf(2)])]]));
});

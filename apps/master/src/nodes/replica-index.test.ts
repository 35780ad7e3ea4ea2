// holds: api-routing-cost

import { emptyLoad } from "@heddle/rpc/node-codec";
import { expect, test } from "vitest";
import { AttachedNode } from "./attached-node.ts";
import { ReplicaIndex } from "./replica-index.ts";

/** A worker that reports these deployments as ready. */
function worker(id: number, deployments: readonly string[]): AttachedNode {
  const register = {
    nodeId: `node-${id}`,
    kind: "NODE_KIND_WORKER" as const,
    name: `w${id}`,
    address: "127.0.0.1:1",
    version: "test",
    incarnation: `i${id}`,
    hardware: null,
    labels: {},
    taints: [],
    rack: "",
    fabric: "",
    executors: [],
    algorithms: [],
    environments: [],
    algorithmSchemas: {},
    taskIsolation: "",
    maxTasks: 0,
    maxTasksChosen: false,
    engineFeatures: [],
  };
  const node = new AttachedNode(register, undefined, 0);
  report(node, deployments);
  return node;
}

function report(node: AttachedNode, deployments: readonly string[]): void {
  const state = {
    phase: "ready",
    pulledBytes: 0,
    totalBytes: 0,
    message: "",
    failureCode: "",
    unreachable: [],
    info: null,
  };
  const replicas = deployments.map((deployment) => ({
    deployment,
    ...state,
    load: { ...emptyLoad, stage: null },
    stage: null,
  }));
  const usage = { cpuPercent: 0, memoryUsedBytes: 0, diskFreeBytes: 0, diskTotalBytes: 0 };
  const rest = {
    gpus: [],
    deviceReadings: 0,
    residentBytes: 0,
    tasks: [],
    refusals: null,
    refusesLeader: "",
    executorFault: "",
  };
  node.onHeartbeat({ ...usage, ...rest, replicas }, 0);
}

function ids(index: ReplicaIndex, deployment: string): string[] {
  return [...index.holders(deployment)].map(({ id }) => id);
}

test("replica index: finds a deployment's 3 nodes of 2,000 and reads no other", () => {
  const index = new ReplicaIndex();
  for (let id = 0; id < 2_000; id++) index.update(worker(id, [`d${Math.floor(id / 3)}`]));
  expect(ids(index, "d7")).toEqual(["node-21", "node-22", "node-23"]);
  expect(index.holders("none").size).toBe(0);
});

test("replica index: a report replaces the last one; a removed node leaves nothing", () => {
  const index = new ReplicaIndex();
  const [first, second] = [worker(1, ["a", "b"]), worker(2, ["b"])];
  index.update(first);
  index.update(second);
  expect([ids(index, "a"), ids(index, "b")]).toEqual([["node-1"], ["node-1", "node-2"]]);
  report(first, ["b", "c"]);
  index.update(first);
  index.update(first);
  expect(["a", "b", "c"].map((name) => ids(index, name))).toEqual([
    [],
    ["node-1", "node-2"],
    ["node-1"],
  ]);
  index.remove(first);
  index.remove(first);
  expect(["a", "b", "c"].map((name) => ids(index, name))).toEqual([[], ["node-2"], []]);
});

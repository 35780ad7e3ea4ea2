// holds: engine-drain

import { eventually } from "@heddle/base/testing/eventually";
import { afterEach, beforeEach, expect, test } from "vitest";
import { collect, TestCluster } from "../../../test/test-cluster.ts";
import { planPlacement } from "./placement-plan.ts";

let cluster: TestCluster;
beforeEach(() => {
  cluster = new TestCluster();
});
afterEach(() => cluster.close());

const HOUR_MS = 3_600_000;

function replicas(): string[] {
  return cluster.link.directory
    .nodes()
    .filter((node) => node.replicas.some(({ phase }) => phase !== "unloading"))
    .map(({ name }) => name)
    .sort();
}

test("draining worker: no new call, its running call ends, then its replica goes", async () => {
  await cluster.startMaster();
  cluster.control.deploy("m", "every-worker", { maxSequences: 4, maxQueued: 4 });
  for (const name of ["one", "two"]) await cluster.startWorker({ name });
  await cluster.workersReady("m", 2);
  const answer = await cluster.start("m", "@tokens=400 @every=5");
  cluster.control.drain(answer.node, "draining", Date.now() + HOUR_MS);
  for (let i = 0; i < 8; i++) {
    const other = await cluster.start("m", "@tokens=1");
    expect(other.node).not.toBe(answer.node);
    await collect(other.events);
  }
  expect(replicas()).toEqual(["one", "two"]);
  const events = await collect(answer.events);
  expect(events.at(-1)).toMatchObject({ type: "done", usage: { completionTokens: 400 } });
  await eventually(() => replicas().length === 1, "the replica is gone");
});

test("drained worker: its replica moves to another; alone it takes no call", async () => {
  await cluster.startMaster();
  cluster.control.deploy("m", 1);
  await cluster.startWorker({ name: "one" });
  await cluster.workersReady("m", 1);
  const one = cluster.node("one");
  // While it drains, and no other worker has the model, it serves on.
  cluster.control.drain(one, "draining", Date.now() + HOUR_MS);
  const still = await cluster.start("m", "@tokens=1");
  expect(still.node).toBe(one);
  await collect(still.events);
  cluster.control.drain(one, "drained", Date.now() + HOUR_MS);
  await expect(cluster.start("m", "@tokens=1")).rejects.toMatchObject({
    code: "unavailable",
    message: expect.stringContaining("drained"),
  });
  await cluster.startWorker({ name: "two" });
  await eventually(() => replicas().join() === "two", "it has moved");
  const moved = await cluster.start("m", "@tokens=1");
  expect(moved.node).toBe(cluster.node("two"));
  await collect(moved.events);
});

test("placement: a leaving worker does not count towards the number of replicas", () => {
  const spec = { key: "m", engine: "llama" as const, options: {} };
  const weights = { key: "m", file: "m.gguf", sources: [] };
  const deployments = new Map([["m", { spec: { ...spec, weights }, replicas: 1 }]]);
  const ready = [{ deployment: "m", phase: "ready" as const }];
  const of = (id: string, leaving?: "draining" | "drained", held: typeof ready = []) => {
    return { id, memoryBytes: 1, replicas: held, leaving };
  };
  const plan = (...workers: Parameters<typeof planPlacement>[1]) =>
    planPlacement(deployments, workers).map(({ type, worker }) => `${type} ${worker}`);
  expect(plan(of("a", "draining", ready), of("b"))).toEqual(["load b"]);
  expect(plan(of("a", "draining", ready), of("b", undefined, ready))).toEqual(["unload a"]);
  expect(plan(of("a", "drained", ready))).toEqual(["unload a"]);
});

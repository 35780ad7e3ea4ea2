import { once } from "node:events";
import { afterEach, beforeEach, expect, test } from "vitest";
import { collect, eventually, scriptedText, TestCluster, textOf } from "../../test/test-cluster.ts";

let cluster: TestCluster;

beforeEach(async () => {
  cluster = new TestCluster();
  await cluster.startMaster();
  cluster.control.deploy("m");
});

afterEach(() => cluster.close());

test("a worker process answers a call over gRPC, from its first event to done", async () => {
  await cluster.startWorker();
  await cluster.workersReady("m", 1);
  const answer = await cluster.start("m", "@tokens=5");
  const events = await collect(answer.events);
  expect(events.map((event) => event.type)).toContain("started");
  expect(textOf(events)).toBe(scriptedText(5));
  expect(events.at(-1)).toMatchObject({ type: "done", usage: { completionTokens: 5 } });
  expect(answer.node).toBe(cluster.node("worker-1"));
});

test("kill -9 of a worker fails its answer with worker_lost; others serve at once", async () => {
  const first = await cluster.startWorker();
  await cluster.workersReady("m", 1);
  const answer = await cluster.start("m", "@tokens=1000 @every=5");
  await cluster.startWorker();
  await cluster.workersReady("m", 2);
  setTimeout(() => first.kill("SIGKILL"), 50);
  const events = await collect(answer.events);
  expect(events.at(-1)).toMatchObject({ type: "failed", error: { code: "worker_lost" } });
  expect(events.length).toBeGreaterThan(2);
  const next = await cluster.start("m", "@tokens=3");
  expect(textOf(await collect(next.events))).toBe(scriptedText(3));
  expect(next.node).toBe(cluster.node("worker-2"));
  expect(cluster.link.stats().workerLost).toBe(1);
});

test("a call that its worker's death meets before the first event moves to another", async () => {
  const first = await cluster.startWorker();
  await cluster.workersReady("m", 1);
  const pending = cluster.start("m", "@hang after the death this text would hang again");
  await eventually("the call is on the worker", () => running() === 1);
  await cluster.startWorker();
  await cluster.workersReady("m", 2);
  const controller = new AbortController();
  first.kill("SIGKILL");
  await once(first, "exit");
  await eventually("the call is on the other worker", () => running() === 1);
  expect(cluster.link.stats().retries).toBe(1);
  controller.abort();
  pending.catch(() => {});
});

function running(): number {
  const replicas = cluster.link.directory.nodes().flatMap((node) => node.replicas);
  return replicas.reduce((sum, { load }) => sum + load.running + load.waiting, 0);
}

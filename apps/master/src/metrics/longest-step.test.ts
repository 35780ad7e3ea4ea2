// holds: bound-views-steps

import { setTimeout as delay } from "node:timers/promises";
import { StepQueue } from "@heddle/base/async/step-queue";
import type { Steps } from "@heddle/base/async/steps";
import { TextPieces } from "@heddle/base/text-pieces";
import { nodeOffer } from "@heddle/control/jobs/testing/specs";
import { afterAll, beforeAll, expect, it, vi } from "vitest";
import { replicaOn } from "../../test/fixtures.ts";
import { send } from "../../test/http.ts";
import { startTestMaster, type TestMaster } from "../../test/test-master.ts";
import type { NodeView } from "../nodes/node-directory.ts";

const NODES = 10_000;
/** Reads of nodes' devices, replicas, labels and tasks, and texts written. */
const MAX_READS = 200;

/** Reads since the last step ended, within a step and without. */
let reads = 0;
let isInStep = false;
let longestStep = 0;
let outsideSteps = 0;
let allReads = 0;
/** Texts written; the sampling in the background writes none. */
let texts = 0;
let server: TestMaster;

function count(): void {
  allReads++;
  if (isInStep) reads++;
  else outsideSteps++;
}

/** Counts what is read of a node. */
function counted(view: NodeView): NodeView {
  return Object.defineProperties(view, {
    ...counter("gpus", view.gpus),
    ...counter("replicas", view.replicas),
    ...counter("offer", view.offer),
  });
}

function counter(name: string, value: unknown): PropertyDescriptorMap {
  const get = () => {
    count();
    return value;
  };
  return { [name]: { get, enumerable: true } };
}

function* countedSteps<T>(make: () => Steps<T>): Steps<T> {
  const work = make();
  for (;;) {
    reads = 0;
    isInStep = true;
    const { done, value } = work.next();
    isInStep = false;
    longestStep = Math.max(longestStep, reads);
    if (done) return value;
    yield;
  }
}

beforeAll(async () => {
  const { run } = StepQueue.prototype;
  vi.spyOn(StepQueue.prototype, "run").mockImplementation(function <T>(
    this: StepQueue,
    make: () => Steps<T>,
  ) {
    return run.call(this, () => countedSteps(make)) as Promise<T>;
  });
  const { add } = TextPieces.prototype;
  vi.spyOn(TextPieces.prototype, "add").mockImplementation(function (this: TextPieces, text) {
    count();
    texts++;
    add.call(this, text);
  });
  server = await startTestMaster();
  const { control, directory } = server;
  const gpu = { index: 0, name: "H100", uuid: "", memoryBytes: 80, memoryUsedBytes: 20 };
  const more = { utilizationPercent: 50, temperatureCelsius: 40, powerWatts: 100, fault: "" };
  for (let at = 0; at < NODES; at++) {
    const offer = nodeOffer(`w${at}`);
    await control.propose({ type: "node.join", atMs: 1, offer });
  }
  const { tasksByNode } = control.jobs;
  const tasksOf = tasksByNode.get.bind(tasksByNode);
  vi.spyOn(tasksByNode, "get").mockImplementation((id) => {
    count();
    return tasksOf(id);
  });
  directory.views = Array.from({ length: NODES }, (_, at) => {
    const view = replicaOn(`w${at}`, "tiny", "ready", 128);
    return counted({ ...view, gpus: [{ ...gpu, ...more, simulated: true }] });
  });
});
afterAll(async () => {
  vi.restoreAllMocks();
  await server.master.close();
});

it.each([
  ["/api/v1/cluster/metrics", `"workers":{"total":${NODES}`],
  ["/metrics", `heddle_replica_requests_running{deployment="tiny",node="w${NODES - 1}"} 2`],
  ["/api/v1/cluster/resources", `"id":"w${NODES - 1}"`],
  ["/api/v1/cluster/status", `"workers":{"attached":${NODES}}`],
  ["/api/v1/workers", `"id":"w${NODES - 1}"`],
])("views: %s is made in bounded steps at 10,000 nodes", async (path, holds) => {
  longestStep = outsideSteps = allReads = 0;
  const text = await (await send(server, "GET", path)).text();
  expect(text).toContain(holds);
  expect(allReads).toBeGreaterThanOrEqual(NODES);
  expect(longestStep).toBeLessThan(MAX_READS);
  expect(outsideSteps).toBe(0);
});

it("views: callers within a second share one run at 10,000 nodes", async () => {
  // The results of the tests before are dropped after a second.
  await delay(1_100);
  for (const path of ["/metrics", "/api/v1/cluster/resources", "/api/v1/workers"]) {
    texts = 0;
    const get = async () => (await send(server, "GET", path)).text();
    const all = await Promise.all([get(), get(), get()]);
    expect(texts).toBeGreaterThan(NODES);
    expect(texts).toBeLessThan(3 * NODES + 1_000);
    expect(new Set(all).size).toBe(1);
  }
  texts = 0;
  await (await send(server, "GET", "/api/v1/workers?consistency=strong")).text();
  expect(texts).toBeGreaterThan(NODES);
});

// holds: plugins-executor-retry

import type { ErrorCode } from "@heddle/base/errors";
import { LIMITED_TASKS } from "@heddle/control/cluster-version";
import { failedReplicas } from "@heddle/control/jobs/scheduling/replica-claims";
import { nodeOffer, scheduledModel } from "@heddle/control/jobs/testing/specs";
import type { Log } from "@heddle/observability/logger";
import { replicaEntry } from "@heddle/scheduler/plan-entry";
import { expect, test } from "vitest";
import { NO_DIVISIONS, replicaOn } from "../../test/fixtures.ts";
import { VolatileControl } from "../../test/test-master.ts";
import { propose } from "../control-plane/propose.ts";
import type { GpuView, NodeView } from "./node-directory.ts";
import { gpuTypeOf } from "./node-offer.ts";
import { NodeWatch } from "./node-watch.ts";

const silentLog: Log = { info: () => {}, warn: () => {}, error: () => {} };
const gpu: GpuView = {
  index: 0,
  uuid: "u",
  name: "NVIDIA H100 80GB HBM3",
  memoryBytes: 85e9,
  memoryUsedBytes: 0,
  utilizationPercent: 0,
  temperatureCelsius: 0,
  powerWatts: 0,
  simulated: false,
  fault: "",
};

/** A watch with a fake clock over nodes that report until they are silenced. */
class Watched {
  readonly control = new VolatileControl();
  readonly nodes = new Map<string, NodeView>();
  readonly silent = new Set<string>();
  nowMs = 1_000_000;
  /** How far the wall clock was set forward. */
  aheadMs = 0;
  readonly watch = new NodeWatch({
    control: this.control,
    directory: {
      nodes: () => this.#views(),
      silentMs: () => raise(),
      pull: () => raise(),
      replicasOf: () => [],
      workersLost: 0,
      divisions: NO_DIVISIONS,
    },
    clock: { wallMs: () => this.nowMs + this.aheadMs, monotonicMs: () => this.nowMs },
    log: silentLog,
    nodeLostMs: 30_000,
    leaseMs: 150_000,
  });

  constructor(ids: readonly string[]) {
    for (const id of ids) this.nodes.set(id, view(id));
  }

  #views(): NodeView[] {
    for (const [id, node] of this.nodes) {
      if (!this.silent.has(id)) this.nodes.set(id, { ...node, lastSeenMs: this.nowMs });
    }
    const { aheadMs } = this;
    return [...this.nodes.values()].map((node) => {
      return { ...node, lastSeenMs: node.lastSeenMs + aheadMs };
    });
  }

  /** Checks every second for this long. */
  async pass(ms: number): Promise<void> {
    for (const end = this.nowMs + ms; this.nowMs < end; ) {
      this.nowMs += 1_000;
      await this.watch.check();
    }
  }

  get states(): Record<string, string> {
    return Object.fromEntries([...this.control.state.nodes].map(([id, { state }]) => [id, state]));
  }
}

function raise(): never {
  throw new Error("the watch pulls nothing");
}

function view(id: string): NodeView {
  const { labels, taints, rack, fabric, executors, algorithms = [], incarnation } = nodeOffer(id);
  const environments: string[] = [];
  const reported = { labels, taints, rack, fabric, executors, algorithms, incarnation };
  const offer = { ...reported, environments, algorithmSchemas: {} };
  return {
    id,
    kind: "worker",
    name: id,
    address: `${id}:1`,
    version: "1",
    incarnation: "1",
    attachedAtMs: 0,
    lastSeenMs: 0,
    cpuPercent: 0,
    cpuCount: 8,
    memoryBytes: 2 ** 34,
    memoryUsedBytes: 0,
    gpus: [gpu],
    deviceReadings: 1,
    replicas: [],
    state: "ready",
    diskBytes: 0,
    diskUsedBytes: 0,
    offer: {
      ...offer,
      localSsdBytes: 1e12,
      ioOperationsPerSec: 0,
      networkMbps: 0,
      maxTasks: 128,
      isMaxTasksChosen: true,
    },
  } as NodeView;
}

test("join: a worker whose executor fails offers none, and offers again once it works", async () => {
  const watched = new Watched(["w1"]);
  const { control, nodes } = watched;
  const executors = () => control.state.nodes.get("w1")?.offer.executors;
  await watched.pass(1_000);
  const working = nodes.get("w1")!;
  expect(executors()).toEqual(working.offer?.executors);
  nodes.set("w1", { ...working, offer: undefined });
  await watched.pass(2_000);
  expect(executors()).toEqual([]);
  expect(watched.states).toEqual({ w1: "ready" });
  nodes.set("w1", working);
  await watched.pass(2_000);
  expect(executors()).toEqual(working.offer?.executors);
});

test("join: many nodes are proposed at once, so that they share log entries", async () => {
  const ids = Array.from({ length: 100 }, (_, at) => `w${at}`);
  const watched = new Watched(ids);
  const { control } = watched;
  const apply = control.propose.bind(control);
  let waiting = 0;
  let most = 0;
  control.propose = async (command, once) => {
    waiting += 1;
    most = Math.max(most, waiting);
    await new Promise(setImmediate);
    waiting -= 1;
    return apply(command, once);
  };
  await watched.pass(1_000);
  expect([most, control.state.nodes.size]).toEqual([100, 100]);
});

test("join: an attached node joins once, and its unhealthy device is quarantined", async () => {
  const watched = new Watched(["a", "b"]);
  await watched.pass(2_000);
  const index = watched.control.appliedIndex;
  await watched.pass(5_000);
  expect(watched.control.appliedIndex).toBe(index);
  expect(watched.control.state.nodes.get("a")?.offer).toMatchObject({
    cpuMilli: 8_000,
    memoryMib: 15_360,
    gpuType: "H100",
    gpuMemoryGb: 85,
    gpuCount: 1,
  });
  watched.nodes.set("a", { ...view("a"), gpus: [{ ...gpu, fault: "Xid 79" }] });
  await watched.pass(1_000);
  expect(watched.control.state.nodes.get("a")?.quarantined).toMatchObject([
    { device: 0, why: "Xid 79" },
  ]);
});

// holds: life-unhealthy-device
test("devices: an older report does not quarantine one returned to service", async () => {
  const watched = new Watched(["a"]);
  const unhealthy = { ...view("a"), gpus: [{ ...gpu, fault: "Xid 79" }], deviceReadings: 7 };
  watched.nodes.set("a", unhealthy);
  await watched.pass(1_000);
  const quarantined = () =>
    watched.control.state.nodes.get("a")?.quarantined.map(({ device }) => device);
  expect(quarantined()).toEqual([0]);
  // Another master has seen that it is healthy, and this one has not yet.
  const healthyAsOf = { incarnation: unhealthy.incarnation, reading: 8 };
  await propose(watched.control, {
    type: "node.resume",
    atMs: watched.nowMs,
    nodeId: "a",
    healthyDevices: [0],
    healthyAsOf,
  });
  await watched.pass(2_000);
  expect(quarantined()).toEqual([]);
  // It becomes unhealthy again, in the same process or in the next one, whose count restarts.
  watched.nodes.set("a", { ...unhealthy, deviceReadings: 9 });
  await watched.pass(1_000);
  expect(quarantined()).toEqual([0]);
  await propose(watched.control, {
    type: "node.resume",
    atMs: watched.nowMs,
    nodeId: "a",
    healthyDevices: [0],
    healthyAsOf,
  });
  watched.nodes.set("a", { ...unhealthy, incarnation: "2", deviceReadings: 1 });
  await watched.pass(1_000);
  expect(quarantined()).toEqual([0]);
});

// holds: life-leader-knowledge
test("leadership: reports from before it do not count", async () => {
  const watched = new Watched(["a"]);
  await watched.pass(1_000);
  watched.watch.reset();
  // The worker restarted and is attached to the present leader; the stream here is older.
  watched.silent.add("a");
  const known = watched.control.state.nodes.get("a")!.offer;
  const offer = { ...known, incarnation: "2" };
  await propose(watched.control, { type: "node.join", atMs: watched.nowMs, offer });
  watched.nowMs += 5_000;
  await watched.pass(5_000);
  expect(watched.control.state.nodes.get("a")?.offer.incarnation).toBe("2");
  watched.silent.delete("a");
  await watched.pass(1_000);
  expect(watched.control.state.nodes.get("a")?.offer.incarnation).not.toBe("2");
});

// holds: life-node-lost
test("lost: a silent node after 30 s, its tasks fenced after the lease; it rejoins", async () => {
  const watched = new Watched(["a", "b", "c"]);
  await watched.pass(1_000);
  watched.silent.add("a");
  await watched.pass(29_000);
  expect(watched.states).toEqual({ a: "ready", b: "ready", c: "ready" });
  await watched.pass(2_000);
  expect(watched.states).toEqual({ a: "lost", b: "ready", c: "ready" });
  const { fencedAtMs = 0, lostAtMs = 0 } = watched.control.state.nodes.get("a")!;
  expect(fencedAtMs - lostAtMs).toBe(155_000);
  watched.silent.delete("a");
  await watched.pass(1_000);
  expect(watched.states).toMatchObject({ a: "ready" });
});

// holds: life-node-lost
test.each([0, 3_600_000, -3_600_000])(
  "fenced: a whole lease after the loss, the wall clock set by %i ms meanwhile",
  async (aheadMs) => {
    const watched = new Watched(["a", "b", "c"]);
    await watched.pass(1_000);
    watched.silent.add("a");
    await watched.pass(31_000);
    expect(watched.states).toMatchObject({ a: "lost" });
    const isFenced = () => watched.control.state.nodes.get("a")?.lostIndex === undefined;
    watched.aheadMs = aheadMs;
    await watched.pass(150_000);
    expect(isFenced()).toBe(false);
    await watched.pass(6_000);
    expect(isFenced()).toBe(true);
  },
);

test("fenced: a new leader waits a whole lease from its first check", async () => {
  const watched = new Watched(["a", "b", "c"]);
  await watched.pass(1_000);
  watched.silent.add("a");
  await watched.pass(180_000);
  watched.watch.reset();
  const isFenced = () => watched.control.state.nodes.get("a")?.lostIndex === undefined;
  await watched.pass(155_000);
  expect(isFenced()).toBe(false);
  await watched.pass(2_000);
  expect(isFenced()).toBe(true);
});

test("lost: a detached node is lost too; a parameter server is no node", async () => {
  const watched = new Watched(["a", "b", "c"]);
  watched.nodes.set("p", { ...view("p"), offer: undefined });
  await watched.pass(1_000);
  watched.nodes.delete("a");
  await watched.pass(31_000);
  expect(watched.states).toEqual({ a: "lost", b: "ready", c: "ready" });
});

// holds: life-mass-silence
test("mass silence: no node is lost for two minutes, then each after its lease", async () => {
  const watched = new Watched(["a", "b", "c"]);
  await watched.pass(1_000);
  for (const id of ["a", "b", "c"]) watched.silent.add(id);
  await watched.pass(120_000);
  expect(watched.states).toEqual({ a: "ready", b: "ready", c: "ready" });
  watched.silent.delete("a");
  watched.silent.delete("b");
  await watched.pass(1_000);
  expect(watched.states).toEqual({ a: "ready", b: "ready", c: "ready" });
  await watched.pass(31_000);
  expect(watched.states).toEqual({ a: "ready", b: "ready", c: "lost" });
  const all = new Watched(["a", "b"]);
  await all.pass(1_000);
  for (const id of ["a", "b"]) all.silent.add(id);
  await all.pass(152_000);
  expect(all.states).toEqual({ a: "lost", b: "lost" });
});

test("replica failure: a permanent one is recorded, a transient one is not", async () => {
  const watched = new Watched(["a", "b"]);
  await watched.pass(1_000);
  const { control } = watched;
  await control.propose(scheduledModel("m", 2, 0));
  const limits = { jobTimeoutMs: 86_400_000, maxConcurrentJobs: 1_000 };
  const starts = ["a", "b"].map((nodeId) => {
    return { entry: replicaEntry("m"), placements: [{ nodeId, devices: [0] }] };
  });
  await control.propose({
    type: "plan.commit",
    atMs: watched.nowMs,
    basedOnIndex: 1,
    overcommitRatio: 1,
    limits,
    acknowledgeMs: 1_000,
    admitted: [],
    unsatisfiable: [],
    preemptions: [],
    expired: [],
    starts,
  });
  const failed = (nodeId: string, failureCode: ErrorCode): void => {
    const [replica] = replicaOn(nodeId, "m", "failed").replicas;
    watched.nodes.set(nodeId, {
      ...view(nodeId),
      replicas: [{ ...replica!, message: "why", failureCode }],
    });
  };
  failed("a", "unavailable");
  failed("b", "model_failed");
  await watched.pass(3_000);
  expect(failedReplicas(control.state, "m")).toEqual([]);
  await watched.pass(3_000);
  expect(failedReplicas(control.state, "m")).toMatchObject([
    { nodeId: "b", devices: [], failure: { code: "model_failed", message: "why" } },
  ]);
  expect(control.state.replicas.get("m@a")?.devices).toEqual([0]);
});

test("stall: time in which this process stalled is no node's silence", async () => {
  const watched = new Watched(["a", "b", "c"]);
  await watched.pass(1_000);
  watched.nodes.delete("a");
  await watched.pass(1_000);
  watched.nowMs += 60_000;
  await watched.watch.check();
  expect(watched.states).toEqual({ a: "ready", b: "ready", c: "ready" });
  // Many short stalls do not add up either.
  for (let stall = 0; stall < 20; stall++) {
    watched.nowMs += 2_000;
    await watched.watch.check();
  }
  expect(watched.states).toEqual({ a: "ready", b: "ready", c: "ready" });
  await watched.pass(30_000);
  expect(watched.states).toEqual({ a: "lost", b: "ready", c: "ready" });
});

test.each([
  ["NVIDIA H100 80GB HBM3", "H100"],
  ["H100-80GB", "H100"],
  ["Tesla V100-SXM2-16GB", "V100"],
  ["NVIDIA GeForce RTX 4090", "RTX4090"],
  ["NVIDIA L40S", "L40S"],
  ["something else", "something else"],
])("GPU type: the device %s is of the type %s", (name, type) => {
  expect(gpuTypeOf(name)).toBe(type);
});

// holds: life-mass-silence
test("mass silence: nodes that flap one after the other are not lost either", async () => {
  const ids = ["a", "b", "c", "d"];
  const watched = new Watched(ids);
  await watched.pass(1_000);
  for (const id of ids) {
    watched.silent.add(id);
    await watched.pass(2_000);
  }
  await watched.pass(110_000);
  for (const id of ids) {
    watched.silent.delete(id);
    await watched.pass(2_000);
    expect(watched.states).toEqual({ a: "ready", b: "ready", c: "ready", d: "ready" });
  }
  await watched.pass(40_000);
  for (const id of ids) watched.silent.add(id);
  await watched.pass(60_000);
  for (const id of ["a", "b", "c"]) watched.silent.delete(id);
  await watched.pass(25_000);
  expect(watched.states).toMatchObject({ d: "ready" });
  await watched.pass(10_000);
  expect(watched.states).toEqual({ a: "ready", b: "ready", c: "ready", d: "lost" });
});

test("join: the limit of tasks is offered once the cluster's version knows it", async () => {
  const watched = new Watched(["a"]);
  const limit = () => watched.control.state.nodes.get("a")?.offer.maxTasks;
  watched.control.state.cluster.set("version", LIMITED_TASKS - 1);
  await watched.pass(2_000);
  expect(watched.states).toEqual({ a: "ready" });
  expect(limit()).toBeUndefined();
  watched.control.state.cluster.set("version", LIMITED_TASKS);
  await watched.pass(2_000);
  expect(limit()).toBe(128);
});

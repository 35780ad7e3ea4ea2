// holds: life-leader-knowledge, scale-heartbeats

import { eventually } from "@heddle/base/testing/eventually";
import type { ReplicaPhase } from "@heddle/contracts/engine";
import type { Register__Output } from "@heddle/contracts/generated/heddle/v1/Register";
import { expect, test } from "vitest";
import { TestControl } from "../../../test/test-cluster.ts";
import type { ControlGroup, GroupStatus } from "../../control-plane/control-group.ts";
import { AttachedNode } from "../attached-node.ts";
import type { RegistryChange } from "../node-registry.ts";
import type { WorkerLink } from "../worker-link.ts";
import { ReplicaController } from "./replica-controller.ts";

/** One worker whose reports the test controls, under a fake clock. */
class Bench {
  readonly control = new TestControl();
  /** When each load was commanded, in milliseconds. */
  readonly loads: number[] = [];
  /** The deployment of each unload that was commanded. */
  readonly unloads: string[] = [];
  nowMs = 0;
  /** How often the controller has read all workers. */
  passes = 0;
  isLive = true;
  readonly #node: AttachedNode;
  #listener: (change: RegistryChange) => void = () => {};

  constructor() {
    const load = () => {
      this.loads.push(this.nowMs);
      return Promise.resolve();
    };
    const unload = (deployment: string) => {
      this.unloads.push(deployment);
      return Promise.resolve();
    };
    const register = { nodeId: "w1", incarnation: "i1", kind: "NODE_KIND_WORKER" };
    this.#node = new AttachedNode(
      register as unknown as Register__Output,
      { load, unload, taken: { sequences: () => 0 } } as unknown as WorkerLink,
      0,
    );
    const nodes = {
      workers: () => {
        this.passes += 1;
        return this.isLive ? [this.#node] : [];
      },
      nodes: () => [],
      divisions: { set: () => {} },
      *incarnations() {
        yield "i1";
      },
      onChange: (listener: (change: RegistryChange) => void) => {
        this.#listener = listener;
        return () => {};
      },
    };
    const clock = { monotonicMs: () => this.nowMs, wallMs: () => this.nowMs };
    const log = { info() {}, warn() {}, error() {} };
    new ReplicaController(nodes, this.control, { clock, random: () => 1, log });
    this.control.deploy("m");
  }

  /** What this master knows of the group from now on. */
  knows(status: Pick<GroupStatus, "isActiveLeader" | "leader">): void {
    this.control.group = { status: () => status } as unknown as ControlGroup;
  }

  /** Reports the phase every half second for this long. */
  async report(phase: ReplicaPhase | undefined, forMs: number, deployment = "m"): Promise<void> {
    const replica = {
      deployment,
      phase,
      message: "",
      failureCode: "",
      unreachable: [],
      load: null,
      info: null,
    };
    const replicas = phase ? [{ ...replica, pulledBytes: 0, totalBytes: 0 }] : [];
    const heartbeat = { replicas, refusesLeader: "", executorFault: "" };
    for (let waitedMs = 0; waitedMs < forMs; waitedMs += 500) {
      this.nowMs += 500;
      this.#node.onHeartbeat(heartbeat as never, this.nowMs);
      await this.changed();
    }
  }

  async changed(change: RegistryChange = "nodes"): Promise<void> {
    this.#listener(change);
    await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
  }
}

test("figures: the reports of many nodes are handled together", async () => {
  const bench = new Bench();
  await bench.report("ready", 1_000);
  const before = bench.passes;
  for (let i = 0; i < 100; i++) await bench.changed("figures");
  expect(bench.passes - before).toBeLessThan(100);
  const merged = bench.passes;
  await eventually(() => bench.passes > merged, "figures are handled soon");
  const passed = bench.passes;
  await bench.changed();
  expect(bench.passes).toBe(passed + 1);
});

test("backoff: starts at a replica's failure, whatever its load took, and grows", async () => {
  const bench = new Bench();
  await bench.report(undefined, 500);
  expect(bench.loads).toEqual([500]);
  for (const restMs of [1_000, 2_000, 4_000]) {
    await bench.report("loading", 60_000);
    const before = bench.loads.length;
    const failedAtMs = bench.nowMs + 500;
    await bench.report("failed", restMs + 500);
    expect(bench.loads.slice(before)).toEqual([failedAtMs + restMs]);
  }
});

test("backoff: stays while a worker is silent for a while", async () => {
  const bench = new Bench();
  await bench.report(undefined, 500);
  for (const restMs of [1_000, 2_000, 4_000, 8_000]) {
    await bench.report("loading", 2_000);
    await bench.report("failed", restMs + 500);
  }
  const { length } = bench.loads;
  await bench.report("loading", 2_000);
  await bench.report("failed", 1_000);
  bench.isLive = false;
  await bench.changed();
  bench.isLive = true;
  await bench.report("failed", 14_000);
  expect(bench.loads).toHaveLength(length);
  await bench.report("failed", 2_000);
  expect(bench.loads).toHaveLength(length + 1);
});

test("follower: unloads nothing that the leader has had loaded", async () => {
  const bench = new Bench();
  bench.knows({ isActiveLeader: false, leader: 2 });
  await bench.report("loading", 2_000, "of-the-leader");
  expect(bench.unloads).toEqual([]);
  expect(bench.loads).toEqual([]);
  // It is elected, and has not applied all entries of the previous leader.
  bench.knows({ isActiveLeader: false, leader: 1 });
  await bench.report("ready", 2_000, "of-the-leader");
  expect(bench.unloads).toEqual([]);
  bench.knows({ isActiveLeader: true, leader: 1 });
  await bench.report("ready", 1_000, "of-the-leader");
  expect(bench.unloads).toEqual(["of-the-leader"]);
  expect(bench.loads).toHaveLength(1);
});

test("without a majority: a worker loads once what it lacks, and keeps the rest", async () => {
  const bench = new Bench();
  bench.knows({ isActiveLeader: false, leader: undefined });
  // An election takes no longer.
  await bench.report(undefined, 9_000);
  expect(bench.loads).toEqual([]);
  await bench.report("ready", 5_000, "unknown-here");
  await bench.report(undefined, 10_000);
  expect(bench.unloads).toEqual([]);
  expect(bench.loads).toEqual([10_500]);
});

test("former leader: waits out the next election before it acts alone", async () => {
  const bench = new Bench();
  bench.knows({ isActiveLeader: false, leader: undefined });
  await bench.report("ready", 2_000);
  bench.knows({ isActiveLeader: true, leader: 1 });
  await bench.report("ready", 60_000);
  const { length } = bench.loads;
  bench.knows({ isActiveLeader: false, leader: undefined });
  bench.control.deploy("of-the-next-leader");
  await bench.report("ready", 9_000);
  expect(bench.loads).toHaveLength(length);
  await bench.report("ready", 2_000);
  expect(bench.loads).toHaveLength(length + 1);
});

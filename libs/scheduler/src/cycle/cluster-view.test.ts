// holds: sched-incremental

import { runToEnd } from "@heddle/base/async/steps";
import { seededRandom } from "@heddle/base/random";
import { expect, test } from "vitest";
import { NOTHING_SHARED } from "../cluster/shared-amounts.ts";
import { Satisfiability } from "../explain/satisfiability.ts";
import { DEFAULT_SETTINGS, type NodeSnapshot, type QueuedJob, type RunningJob } from "../model.ts";
import { entryKey, isSameEntry } from "../plan-entry.ts";
import { decide } from "../schedule.ts";
import { HOUR_MS, node, queued, request } from "../testing/scenarios.ts";
import { ClusterView } from "./cluster-view.ts";
import type { SchedulingSnapshot } from "./scheduling-cycle.ts";

const SEQUENCES = Number(process.env["HEDDLE_PROPERTY_RUNS"] ?? 20);
const STEPS = 40;

/** A cluster with random changes, as a view and as plain data. */
class ChangingCluster {
  readonly nodes = new Map<string, NodeSnapshot>();
  readonly running = new Map<string, RunningJob>();
  readonly view: ClusterView;
  readonly #random: () => number;
  #made = 0;

  constructor(random: () => number) {
    this.#random = random;
    for (let n = 0; n < 3; n++) this.#setNode(this.#drawNode(`n${n}`));
    this.view = new ClusterView(this.nodes.values(), [], 1.5);
  }

  step(): void {
    const draw = this.#below(10);
    const known = [...this.nodes.values()];
    const one = known[this.#below(known.length)];
    if (draw < 2 || !one) this.#put(this.#drawNode(`n${this.#below(12)}`));
    else if (draw === 2) this.#leave(one.id);
    else if (draw === 3) this.#put({ ...one, state: this.#pick(["ready", "draining", "lost"]) });
    else if (draw === 4) this.#put({ ...one, labels: { zone: this.#pick(["x", "y"]) } });
    else if (draw === 5) this.#put({ ...one, devices: this.#unhealthy(one.devices.length) });
    else if (draw < 9) this.#place();
    else this.#end();
  }

  /** A queue of jobs on the given view. */
  snapshot(view: ClusterView, queue: readonly QueuedJob[]): SchedulingSnapshot {
    const shared = { limit: NOTHING_SHARED, free: NOTHING_SHARED };
    const settings = { ...DEFAULT_SETTINGS, overcommitRatio: 1.5 };
    const projectOf = () => undefined;
    return { index: 1, view, projectOf, shared, queue, nowMs: 0, settings };
  }

  drawQueue(): QueuedJob[] {
    return Array.from({ length: 4 }, () => {
      const tasks = this.#pick([1, 1, 2, 3]);
      const wanted = request({
        gpus: this.#pick([0, 1, 1, 2, 8]),
        cpuMilli: this.#pick([500, 8_000, 30_000]),
        gpuTypes: this.#pick([[], [], ["A"]]),
        infiniband: this.#below(6) === 0,
        nodeAffinity: this.#below(4) > 0 ? [] : [{ key: "zone", operator: "in", values: ["x"] }],
      });
      const priority = this.#below(3);
      const share = wanted.gpus === 1 && this.#below(2) === 0 ? { gpuMilli: 300 } : {};
      const rest = { tasks, priority, sameRack: this.#below(5) === 0 };
      return queued(`j${this.#made++}`, { ...rest, request: { ...wanted, ...share } });
    });
  }

  #put(drawn: NodeSnapshot): void {
    this.#setNode(drawn);
    this.view.putNode(drawn);
  }

  #setNode(drawn: NodeSnapshot): void {
    this.nodes.set(drawn.id, drawn);
  }

  /** Running jobs keep naming the node, as it may return. */
  #leave(id: string): void {
    this.nodes.delete(id);
    this.view.removeNode(id);
  }

  #place(): void {
    const queue = this.drawQueue();
    const { starts } = decide(this.snapshot(this.view, queue));
    for (const { entry, placements } of starts) {
      const { shared: _, entry: __, ...job } = queue.find((job) => isSameEntry(job.entry, entry))!;
      const times = { startedAtMs: 0, checkpointedAtMs: 0, maxRuntimeMs: HOUR_MS };
      const started = { ...job, id: entryKey(entry), placements, ...times };
      this.running.set(entryKey(entry), started);
      this.view.put(started);
    }
  }

  #end(): void {
    const ids = [...this.running.keys()];
    const id = ids[this.#below(ids.length)];
    if (id === undefined) return;
    this.running.delete(id);
    this.view.remove(id);
  }

  #drawNode(id: string): NodeSnapshot {
    const cores = this.#pick([8, 32, 96]);
    return node(id, {
      gpus: this.#pick([0, 2, 4, 8, 10]),
      gpuType: this.#pick(["A", "B"]),
      rack: this.#pick(["r1", "r2", ""]),
      fabric: this.#pick(["f1", ""]),
      labels: { zone: this.#pick(["x", "y"]) },
      capacity: { ...node("any").capacity, cpuMilli: cores * 1_000 },
    });
  }

  #unhealthy(length: number): { healthy: boolean }[] {
    return Array.from({ length }, () => ({ healthy: this.#below(4) > 0 }));
  }

  #below(bound: number): number {
    return Math.floor(this.#random() * bound);
  }

  #pick<T>(from: readonly T[]): T {
    return from[this.#below(from.length)]!;
  }
}

/** All of a view that a decision can read. */
function seen({ roster, free, capacity, running }: ClusterView) {
  const rows = roster.present().map(({ id }) => roster.position(id)!);
  return {
    nodes: roster.present(),
    size: roster.size,
    totals: roster.totals,
    widest: [roster.widestCpuMilli, roster.widestDevices],
    free: rows.map((row) => free.rowOf(row)),
    capacity: rows.map((row) => capacity.rowOf(row)),
    running: [...running.values()],
  };
}

function runSequence(seed: number): void {
  const cluster = new ChangingCluster(seededRandom(seed));
  const { view } = cluster;
  const kept = new Satisfiability();
  for (let step = 0; step < STEPS; step++) {
    cluster.step();
    const queue = cluster.drawQueue();
    const rebuilt = new ClusterView(cluster.nodes.values(), cluster.running.values(), 1.5);
    expect(seen(view)).toEqual(seen(rebuilt));
    const snapshot = cluster.snapshot(view, queue);
    const fresh = cluster.snapshot(rebuilt, queue);
    expect(decide(snapshot)).toEqual(decide(fresh));
    for (const job of queue) {
      const known = runToEnd(kept.neverFits(snapshot, job));
      expect(known).toEqual(runToEnd(new Satisfiability().neverFits(fresh, job)));
    }
  }
}

test(`cluster view: updated, it equals a new one; ${SEQUENCES} random sequences`, () => {
  const first = Math.floor(Math.random() * 2 ** 31);
  console.log(`first seed ${first}`);
  for (let n = 0; n < SEQUENCES; n++) {
    try {
      runSequence(first + n);
    } catch (error) {
      throw new Error(`seed ${first + n}: ${String(error)}`, { cause: error });
    }
  }
});

test("view: nodes have up to 64 devices, and one with more widens the arrays", () => {
  const view = new ClusterView([node("narrow", { gpus: 2 })], [], 1);
  view.putNode(node("wide", { gpus: 64 }));
  const wide = queued("wide", { request: request({ gpus: 40 }) });
  const shared = { limit: NOTHING_SHARED, free: NOTHING_SHARED };
  const projectOf = () => undefined;
  const rest = { index: 1, projectOf, shared, nowMs: 0, settings: DEFAULT_SETTINGS };
  const { starts } = decide({ ...rest, view, queue: [wide] });
  expect(starts[0]?.placements[0]).toMatchObject({ nodeId: "wide" });
  expect(starts[0]?.placements[0]?.devices).toHaveLength(40);
  expect(() => view.putNode(node("wider", { gpus: 65 }))).toThrow("65 GPUs, over 64");
});

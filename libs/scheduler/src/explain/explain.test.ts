// holds: sched-explain

import { runToEnd } from "@heddle/base/async/steps";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type SchedulingInput, snapshotFrom } from "../cycle/scheduling-cycle.ts";
import type { NodeSnapshot, QueuedJob } from "../model.ts";
import { entryKey, isSameEntry } from "../plan-entry.ts";
import { schedule } from "../schedule.ts";
import { nodes, queues } from "../testing/arbitraries.ts";
import { HOUR_MS, input, node, project, queued, request, running } from "../testing/scenarios.ts";
import { explain } from "./explain.ts";
import { Satisfiability } from "./satisfiability.ts";

const never = (at: SchedulingInput, job: QueuedJob) =>
  runToEnd(new Satisfiability().neverFits(snapshotFrom(at), job));

const explained = (at: SchedulingInput, id: string) =>
  runToEnd(
    explain(snapshotFrom(at), schedule(at), at.queue.find((job) => entryKey(job.entry) === id)!),
  );

const blockersOf = (
  cluster: NodeSnapshot[],
  job: QueuedJob,
  rest: Partial<SchedulingInput> = {},
) => {
  const at = { ...input({ nodes: cluster }, [job]), ...rest };
  return explained(at, entryKey(job.entry)).blockers;
};

describe("blockers", () => {
  it("InsufficientGpu has the requested, free and total amounts", () => {
    const unhealthy = node("n", { devices: [{ healthy: false }, { healthy: true }] });
    const job = queued("q", { request: request({ gpus: 2 }) });
    expect(blockersOf([unhealthy], job)).toEqual([
      {
        reason: "InsufficientGpu",
        resource: "gpu_milli",
        requested: 2000,
        free: 1000,
        limit: 1000,
      },
    ]);
  });

  it("lists CPU and memory shortages together, never only one", () => {
    const job = queued("q", { request: request({ cpuMilli: 97_000, memoryMib: 800_000 }) });
    expect(blockersOf([node("n")], job)).toEqual([
      {
        reason: "InsufficientCpu",
        resource: "cpu_milli",
        requested: 97_000,
        free: 96_000,
        limit: 96_000,
      },
      {
        reason: "InsufficientMemory",
        resource: "memory_mib",
        requested: 800_000,
        free: 786_432,
        limit: 786_432,
      },
    ]);
  });

  it.each([
    ["localSsdGb", "local_ssd_gb", "InsufficientLocalSsd"],
    ["ioOperationsPerSec", "io_operations_per_sec", "InsufficientIo"],
    ["networkMbps", "network_mbps", "InsufficientNetwork"],
    ["tasks", "tasks", "InsufficientTaskPlaces"],
  ] as const)("a lack of %s is %s, %s", (name, resource, reason) => {
    const base = request();
    const job = queued("q", { request: { ...base, scalars: { ...base.scalars, [name]: 1e9 } } });
    expect(blockersOf([node("n")], job)).toMatchObject([{ reason, resource }]);
  });

  it("Fragmented where enough is free but on too many nodes", () => {
    const cluster = [node("a", { gpus: 2 }), node("b", { gpus: 2 })];
    const job = queued("q", { request: request({ gpus: 4 }) });
    expect(blockersOf(cluster, job)).toEqual([
      { reason: "Fragmented", resource: "gpu_milli", requested: 4000, free: 4000, limit: 4000 },
    ]);
  });

  it.each([
    ["localSsdGb", "local_ssd_gb"],
    ["ioOperationsPerSec", "io_operations_per_sec"],
    ["networkMbps", "network_mbps"],
    ["memoryMib", "memory_mib"],
  ] as const)("Fragmented names only %s, which is on too many nodes", (name, resource) => {
    const base = request({ gpus: 0 });
    const each = node("a").capacity[name];
    const scalars = { ...base.scalars, [name]: each + 1 };
    const job = queued("q", { request: { ...base, scalars } });
    expect(blockersOf([node("a"), node("b")], job)).toEqual([
      { reason: "Fragmented", resource, requested: each + 1, free: 2 * each, limit: 2 * each },
    ]);
  });

  it("Fragmented names each amount that only another node has", () => {
    const { capacity } = node("a");
    const cluster = [
      node("a", { capacity: { ...capacity, cpuMilli: 500 } }),
      node("b", { capacity: { ...capacity, memoryMib: 500 } }),
    ];
    const job = queued("q", { request: request({ gpus: 0 }) });
    expect(blockersOf(cluster, job)).toMatchObject([
      { reason: "Fragmented", resource: "cpu_milli" },
      { reason: "Fragmented", resource: "memory_mib" },
    ]);
  });

  it("TopologyUnavailable where the gang fits, but in no one rack or on no one fabric", () => {
    const cluster = [
      node("a", { gpus: 1, fabric: "f1" }),
      node("b", { gpus: 1, rack: "r2", fabric: "f2" }),
    ];
    const rack = queued("q", { tasks: 2, sameRack: true });
    const fabric = queued("q", { tasks: 2, request: request({ infiniband: true }) });
    expect(blockersOf(cluster, rack)).toMatchObject([
      { reason: "TopologyUnavailable", resource: "gpu_milli_in_one_rack" },
    ]);
    expect(blockersOf(cluster, fabric)).toMatchObject([
      { reason: "TopologyUnavailable", resource: "gpu_milli_on_one_fabric" },
    ]);
    const plain = [node("a", { gpus: 1 })];
    expect(blockersOf(plain, fabric)).toMatchObject([
      { reason: "TopologyUnavailable", resource: "infiniband" },
    ]);
  });

  it("AffinityNoMatch where no node has the labels", () => {
    const nodeAffinity = [{ key: "zone", operator: "in" as const, values: ["z"] }];
    const job = queued("q", { request: request({ nodeAffinity }) });
    expect(blockersOf([node("n")], job)).toEqual([
      {
        reason: "AffinityNoMatch",
        resource: "affinity",
        requested: 1,
        free: 0,
        limit: 1,
        rejected: 1,
      },
    ]);
  });

  it("NodesDraining where draining nodes would have served", () => {
    const cluster = [node("a", { gpus: 1 }), node("b", { state: "draining" })];
    const job = queued("q", { request: request({ gpus: 2 }) });
    expect(blockersOf(cluster, job).map(({ reason }) => reason)).toEqual([
      "InsufficientGpu",
      "NodesDraining",
    ]);
    expect(blockersOf([node("b", { state: "drained" })], job)).toMatchObject([
      { reason: "NodesDraining", resource: "state" },
    ]);
  });

  it("NodesLost where lost nodes would have served, apart from those that drain", () => {
    const cluster = [node("a", { gpus: 1 }), node("b", { state: "lost" })];
    const job = queued("q", { request: request({ gpus: 2 }) });
    expect(blockersOf(cluster, job)).toMatchObject([
      { reason: "InsufficientGpu", free: 1_000, limit: 1_000 },
      { reason: "NodesLost", resource: "nodes", requested: 1, free: 1, limit: 2 },
    ]);
    const nodeAffinity = [{ key: "zone", operator: "in" as const, values: ["z"] }];
    const zoned = [node("a"), node("b", { state: "lost", labels: { zone: "z" } })];
    const bound = queued("q", { request: request({ nodeAffinity }) });
    expect(blockersOf(zoned, bound)).toMatchObject([
      { reason: "NodesLost", resource: "lost", rejected: 1 },
      { reason: "AffinityNoMatch", resource: "affinity", rejected: 1 },
    ]);
  });

  it("DependencyWait, Backoff and QueueFull come together with their numbers", () => {
    const projects = [project("p1", { quota: { queueLength: 1 } })];
    const job = queued("q", { waitingFor: ["x", "y"], notBeforeMs: 5_000, submittedAtMs: 1 });
    const at = input({ nodes: [node("n")], projects }, [queued("first"), job], { nowMs: 1_000 });
    expect(explained(at, "q").blockers).toEqual([
      {
        reason: "DependencyWait",
        resource: "dependencies",
        requested: 2,
        free: 0,
        limit: 2,
        jobs: ["x", "y"],
      },
      { reason: "Backoff", resource: "ms_to_wait", requested: 4_000, free: 0, limit: 5_000 },
      { reason: "QueueFull", resource: "queue_position", requested: 2, free: 0, limit: 1 },
    ]);
  });

  it("QuotaExceeded for GPUs, GPU-hours and running jobs at once", () => {
    const projects = [project("p1", { quota: { gpuMilli: 4000, gpuHours: 10 }, usedGpuHours: 8 })];
    const job = queued("q", { request: request({ gpus: 8 }), maxRuntimeMs: 2 * HOUR_MS });
    const at = input({ nodes: [node("n")], projects }, [job], {
      settings: { maxConcurrentJobs: 0 },
    });
    expect(explained(at, "q").blockers).toEqual([
      { reason: "QuotaExceeded", resource: "concurrent_jobs", requested: 1, free: 0, limit: 0 },
      { reason: "QuotaExceeded", resource: "gpu_milli", requested: 8000, free: 4000, limit: 4000 },
      { reason: "QuotaExceeded", resource: "gpu_hours", requested: 16, free: 2, limit: 10 },
    ]);
  });
});

describe("explain", () => {
  it("counts the nodes that each filter and the lack of capacity reject", () => {
    const cluster = [
      node("a", { state: "draining" }),
      node("b", { taints: ["spot"] }),
      node("c", { gpus: 0 }),
      node("d", { gpuType: "L4" }),
      node("e", { gpuMemoryGb: 24 }),
      node("f"),
      node("g", { gpus: 1 }),
    ];
    const job = queued("q", {
      tasks: 2,
      request: request({ gpus: 8, gpuTypes: ["H100"], gpuMemoryGb: 80 }),
    });
    const {
      rejectedByFilter,
      rejectedByCapacity,
      tasksThatFit,
      nodes: all,
    } = explained(input({ nodes: cluster }, [job]), "q");
    expect(rejectedByFilter).toEqual({ state: 1, taint: 1, gpu: 1, gpu_type: 1, gpu_memory: 1 });
    expect([rejectedByCapacity, tasksThatFit, all]).toEqual([1, 1, 7]);
  });

  it("estimates the start from progress, from bounds, and from those ahead", () => {
    const busy = running("busy", [{ nodeId: "n", devices: [0] }], {
      maxRuntimeMs: 2 * HOUR_MS,
      expectedEndMs: HOUR_MS / 2,
    });
    const queue = [queued("first"), queued("second", { submittedAtMs: 1 })];
    const at = input({ nodes: [node("n", { gpus: 1 })], running: [busy] }, queue);
    expect(explained(at, "first").start).toEqual({
      earliestMs: HOUR_MS / 2,
      likelyMs: 2 * HOUR_MS,
      latestMs: 2 * HOUR_MS,
    });
    expect(explained(at, "second").start).toEqual({
      earliestMs: HOUR_MS / 2,
      likelyMs: 3 * HOUR_MS,
      latestMs: 3 * HOUR_MS,
    });
  });

  const held = running("held", [{ nodeId: "n", devices: [0] }], {
    maxRuntimeMs: 4 * HOUR_MS,
    expectedEndMs: HOUR_MS,
    shared: { storageMb: 4, places: new Map() },
  });
  const quota = (change: object) => [project("p1", { usedGpuHours: 1, ...change })];

  it.each<[string, object, object, object]>([
    ["GPUs", { projects: quota({ quota: { gpuMilli: 1_000 } }) }, {}, {}],
    ["running jobs", {}, {}, { settings: { maxConcurrentJobs: 1 } }],
    [
      "shared storage",
      {
        shared: {
          limit: { storageMb: 5, places: new Map() },
          free: { storageMb: 1, places: new Map() },
        },
      },
      { shared: { storageMb: 3, shards: 0, placesPerShard: 1 } },
      {},
    ],
  ])("a job that only the bound on %s holds starts when others have ended", (...args) => {
    const [, snapshot, change, rest] = args;
    const at = input(
      { nodes: [node("n")], running: [held], ...snapshot },
      [queued("q", change)],
      rest,
    );
    expect(explained(at, "q").blockers).toHaveLength(1);
    const ends = { earliestMs: HOUR_MS, likelyMs: 4 * HOUR_MS, latestMs: 4 * HOUR_MS };
    expect(explained(at, "q").start).toEqual(ends);
  });

  it("GPU-hours come back with early ends, else with the next window", () => {
    const bounds = { quota: { gpuHours: 6 }, windowEndsMs: 9 * HOUR_MS };
    const at = (change: object, hours: number) =>
      explained(
        input({ nodes: [node("n")], running: [held], projects: quota({ ...bounds, ...change }) }, [
          queued("q", { maxRuntimeMs: hours * HOUR_MS }),
        ]),
        "q",
      ).start;
    // 1 used and 4 held for, of 6: an early end gives 3 back.
    expect(at({}, 2)).toMatchObject({ earliestMs: HOUR_MS, likelyMs: 9 * HOUR_MS });
    expect(at({}, 5)).toMatchObject({ earliestMs: 9 * HOUR_MS, likelyMs: 9 * HOUR_MS });
    // The window turns while what runs has two hours left.
    const soon = { windowEndsMs: 2 * HOUR_MS };
    expect(at(soon, 4)).toMatchObject({ likelyMs: 2 * HOUR_MS });
    expect(at(soon, 6).likelyMs).toBeUndefined();
    expect(at(soon, 6).latestMs).toBeUndefined();
  });

  it("beyond its project's queue length a job starts when those before it have", () => {
    const busy = running("busy", [{ nodeId: "n", devices: [0] }], { maxRuntimeMs: 2 * HOUR_MS });
    const projects = [project("p1", { quota: { queueLength: 1 } })];
    const queue = [queued("first"), queued("q", { submittedAtMs: 1 })];
    const at = input({ nodes: [node("n", { gpus: 1 })], projects, running: [busy] }, queue);
    expect(explained(at, "q").start).toEqual({
      earliestMs: 2 * HOUR_MS,
      likelyMs: 3 * HOUR_MS,
      latestMs: 3 * HOUR_MS,
    });
  });

  it("a job that fits after a reservation starts when that allows it, not now", () => {
    const busy = running("busy", [{ nodeId: "n", devices: [0] }], {
      maxRuntimeMs: 2 * HOUR_MS,
      expectedEndMs: HOUR_MS,
    });
    const head = queued("head", { request: request({ gpus: 8 }), maxRuntimeMs: 3 * HOUR_MS });
    const long = queued("q", { submittedAtMs: 1, maxRuntimeMs: 4 * HOUR_MS });
    const at = input({ nodes: [node("n")], running: [busy] }, [head, long]);
    expect(explained(at, "q").blockers).toMatchObject([{ reason: "PriorityBehind" }]);
    expect(explained(at, "q").start).toEqual({
      earliestMs: HOUR_MS,
      likelyMs: 5 * HOUR_MS,
      latestMs: 5 * HOUR_MS,
    });
  });

  it("a job waits for the quota of a reservation before it until that has ended", () => {
    const busy = running("busy", [{ nodeId: "a", devices: [0] }], {
      project: "p2",
      maxRuntimeMs: 2 * HOUR_MS,
      expectedEndMs: HOUR_MS,
    });
    const gpus = (count: number) => ({ request: request({ gpus: count }) });
    const head = queued("head", { ...gpus(2), maxRuntimeMs: 3 * HOUR_MS });
    const behind = queued("q", { submittedAtMs: 1, ...gpus(1), maxRuntimeMs: 9 * HOUR_MS });
    const cluster = [node("a", { gpus: 2 }), node("b", { gpus: 1 })];
    const start = (quota: object) => {
      const projects = [project("p1", { quota, windowEndsMs: 20 * HOUR_MS })];
      return explained(input({ nodes: cluster, projects, running: [busy] }, [head, behind]), "q")
        .start;
    };
    const after = { earliestMs: HOUR_MS, likelyMs: 5 * HOUR_MS };
    expect(start({ gpuMilli: 2_000 })).toMatchObject(after);
    // The head is to use 6 of 14 hours: the rest is too little until the window ends.
    expect(start({ gpuHours: 14 })).toMatchObject({ earliestMs: HOUR_MS, likelyMs: 20 * HOUR_MS });
  });

  it("no pending job is estimated to start now, and likely is no later than late", () => {
    fc.assert(
      fc.property(nodes, queues, fc.nat(3), fc.nat(4), (cluster, queue, gpus, length) => {
        const bounds = { gpuMilli: 2_000 * gpus, queueLength: length + 1, gpuHours: 20 };
        const projects = [project("p1", { quota: bounds, windowEndsMs: 50 * HOUR_MS })];
        const settings = { maxConcurrentJobs: 3 };
        const at = input({ nodes: cluster, projects }, queue, { nowMs: 1, settings });
        const plan = schedule(at);
        for (const { entry, blockers } of plan.pending) {
          // Jobs that this plan starts leave the queue only in the next cycle.
          if (blockers.some(({ reason }) => reason === "QueueFull")) continue;
          const { start: explained } = runToEnd(
            explain(snapshotFrom(at), plan, queue.find((job) => isSameEntry(job.entry, entry))!),
          );
          expect(explained.earliestMs ?? 2).toBeGreaterThan(1);
          expect(explained.earliestMs ?? 0).toBeLessThanOrEqual(
            explained.likelyMs ?? Number.MAX_VALUE,
          );
          expect(explained.likelyMs ?? 0).toBeLessThanOrEqual(
            explained.latestMs ?? Number.MAX_VALUE,
          );
        }
      }),
      { numRuns: 60 },
    );
  });

  it("gives no estimate while a dependency is open", () => {
    const at = input({ nodes: [node("n")] }, [queued("q", { waitingFor: ["x"] })]);
    expect(explained(at, "q").start).toEqual({});
  });

  it("distinguishes a missing executor from missing labels, and lists the offers", () => {
    const offers = [{ kind: "executor" as const, name: "container", labelPrefix: "x/" }];
    const job = queued("q", { request: request({ offers }) });
    const cluster = [node("n", { labels: { "x/process": "true", zone: "a" } })];
    expect(blockersOf(cluster, job)).toEqual([
      {
        reason: "ExecutorUnavailable",
        resource: "executor",
        requested: 1,
        free: 0,
        limit: 1,
        rejected: 1,
        wanted: "container",
        offered: ["process"],
      },
    ]);
  });

  it("does not change the plan: started jobs start now, others keep their blockers", () => {
    fc.assert(
      fc.property(nodes, queues, (cluster, queue) => {
        const at = input({ nodes: cluster }, queue);
        const plan = schedule(at);
        for (const job of queue) {
          const explained = runToEnd(explain(snapshotFrom(at), plan, job));
          const pending = plan.pending.find(({ entry }) => isSameEntry(entry, job.entry));
          expect(explained.blockers).toEqual(pending?.blockers ?? []);
          if (!pending) expect(explained.start.likelyMs).toBe(at.nowMs);
        }
      }),
      { numRuns: 40 },
    );
  });
});

describe("neverFits", () => {
  it("is empty for a job that only has to wait; drained nodes count as available", () => {
    const busy = running("busy", [{ nodeId: "n", devices: [0] }]);
    const at = input({ nodes: [node("n", { gpus: 1, state: "drained" })], running: [busy] }, []);
    expect(never(at, queued("q"))).toEqual([]);
  });

  it("names the capacity and the quota that are permanently too small", () => {
    const projects = [project("p1", { quota: { gpuMilli: 8000 } })];
    const at = input({ nodes: [node("n", { gpus: 8 })], projects }, []);
    const job = queued("q", { request: request({ gpus: 16 }) });
    expect(never(at, job).map(({ reason, resource }) => [reason, resource])).toEqual([
      ["QuotaExceeded", "gpu_milli"],
      ["InsufficientGpu", "gpu_milli"],
    ]);
  });
});

import fc from "fast-check";
import type { LabelSelector, NodeSnapshot, QueuedJob, Strategy, TaskRequest } from "../model.ts";
import { HOUR_MS, node, queued, request } from "./scenarios.ts";

/** Random small clusters and queues, tight enough that jobs compete and some never fit. */

export const strategies = fc.constantFrom<Strategy>("binpack", "spread", "fragmentation");

export const nodes: fc.Arbitrary<NodeSnapshot[]> = fc
  .array(
    fc.record({
      gpus: fc.constantFrom(0, 1, 2, 4, 8),
      cores: fc.constantFrom(8, 16, 96),
      gpuType: fc.constantFrom("A", "B"),
      rack: fc.constantFrom("r1", "r2", ""),
      fabric: fc.constantFrom("f1", ""),
      zone: fc.constantFrom("x", "y"),
      state: fc.constantFrom("ready", "ready", "ready", "draining"),
      unhealthy: fc.boolean(),
      places: fc.constantFrom(2, 110),
    }),
    { minLength: 1, maxLength: 8 },
  )
  .map((kinds) =>
    kinds.map(({ gpus, cores, gpuType, rack, fabric, zone, state, unhealthy, places }, i) =>
      node(`n${i}`, {
        gpuType: gpus > 0 ? gpuType : "",
        devices: Array.from({ length: gpus }, (_, d) => ({ healthy: !(unhealthy && d === 0) })),
        capacity: {
          cpuMilli: cores * 1000,
          memoryMib: cores * 4096,
          localSsdGb: 100,
          ioOperationsPerSec: 1000,
          networkMbps: 1000,
          tasks: places,
        },
        rack,
        fabric,
        labels: { zone, host: `n${i}` },
        state: state as NodeSnapshot["state"],
      }),
    ),
  );

export const requests: fc.Arbitrary<TaskRequest> = fc
  .record({
    gpu: fc.constantFrom([0, 0], [1, 1000], [1, 1000], [2, 1000], [4, 1000], [1, 470], [1, 250]),
    cpuMilli: fc.constantFrom(500, 2_000, 8_000),
    memoryMib: fc.constantFrom(512, 16_384),
    gpuTypes: fc.constantFrom([], [], ["A"], ["A", "B"]),
    zone: fc.constantFrom("", "", "x"),
    hosts: fc.constantFrom([], [], [], ["n0"], ["n1"], ["n0", "n1"], ["n1", "n2", "n3"]),
    infiniband: fc.constantFrom(false, false, false, true),
    gpuIndex: fc.constantFrom(undefined, undefined, undefined, 0, 1),
    onePerNode: fc.constantFrom(undefined, undefined, undefined, true),
  })
  .map(({ gpu, zone, hosts, gpuIndex, onePerNode, ...rest }) =>
    request({
      ...rest,
      gpus: gpu[0]!,
      gpuMilli: gpu[1]!,
      ...(gpu[0] === 1 && gpu[1] === 1000 && { gpuIndex }),
      ...(gpu[0]! > 0 && onePerNode && { onePerNode }),
      nodeAffinity: [...labelIn("zone", zone ? [zone] : []), ...labelIn("host", hosts)],
    }),
  );

export const queues: fc.Arbitrary<QueuedJob[]> = fc
  .array(
    fc.record({
      request: requests,
      tasks: fc.constantFrom(1, 1, 1, 2, 3, 6),
      project: fc.constantFrom("p1", "p2", "p3"),
      priority: fc.integer({ min: -2, max: 2 }),
      qosLevel: fc.constantFrom("guaranteed", "standard", "standard", "best_effort"),
      kind: fc.constantFrom("training", "training", "training", "serving"),
      preemptible: fc.boolean(),
      hours: fc.integer({ min: 1, max: 5 }),
      sameRack: fc.constantFrom(false, false, true),
    }),
    { maxLength: 25 },
  )
  .map((kinds) =>
    kinds.map(({ hours, ...kind }, i) =>
      queued(`j${String(i).padStart(3, "0")}`, {
        ...kind,
        qosLevel: kind.qosLevel as QueuedJob["qosLevel"],
        kind: kind.kind as QueuedJob["kind"],
        submittedAtMs: i,
        maxRuntimeMs: hours * HOUR_MS,
      }),
    ),
  );

/** No selector if any value is accepted. */
function labelIn(key: string, values: readonly string[]): LabelSelector[] {
  return values.length > 0 ? [{ key, operator: "in", values }] : [];
}

/** Jobs of several priorities, each restricted to a few hosts; the sets may overlap. */
export const pinnedQueues: fc.Arbitrary<QueuedJob[]> = fc
  .array(
    fc.record({
      request: requests,
      hosts: fc.subarray(["n0", "n1", "n2", "n3", "n4"], { minLength: 1, maxLength: 2 }),
      tasks: fc.constantFrom(1, 1, 2),
      priority: fc.integer({ min: -2, max: 2 }),
      project: fc.constantFrom("p1", "p2"),
      hours: fc.integer({ min: 1, max: 5 }),
    }),
    { minLength: 2, maxLength: 12 },
  )
  .map((kinds) =>
    kinds.map(({ request: asked, hosts, hours, ...kind }, i) =>
      queued(`h${String(i).padStart(3, "0")}`, {
        ...kind,
        request: { ...asked, nodeAffinity: labelIn("host", hosts) },
        submittedAtMs: i,
        maxRuntimeMs: hours * HOUR_MS,
      }),
    ),
  );

/** Evictable jobs without node affinity, enough to fill such a cluster for long. */
export const fillers: fc.Arbitrary<QueuedJob[]> = fc
  .array(fc.record({ request: requests, hours: fc.integer({ min: 1, max: 20 }) }), {
    minLength: 15,
    maxLength: 40,
  })
  .map((kinds) =>
    kinds.map(({ request: asked, hours }, i) =>
      queued(`f${String(i).padStart(3, "0")}`, {
        request: { ...asked, nodeAffinity: [], gpuIndex: undefined },
        qosLevel: "best_effort",
        submittedAtMs: i,
        maxRuntimeMs: hours * HOUR_MS,
      }),
    ),
  );

// holds: sched-hand-placed

import { expect, test } from "vitest";
import { jobEntry } from "../plan-entry.ts";
import { schedule } from "../schedule.ts";
import { input, node, queued, request, running } from "../testing/scenarios.ts";
import { Roster } from "./roster.ts";
import { ShapeTable } from "./shape.ts";

/** A job that requires the device with that index, before all others. */
const named = (gpuIndex: number) =>
  queued("named", { priority: 10, preemptible: false, request: request({ gpuIndex }) });

const holds = (id: string, device: number, change = {}) =>
  running(id, [{ nodeId: "n", devices: [device] }], change);

test.each(["binpack", "spread", "fragmentation"] as const)(
  "named device: under %s the job gets it, another job what is left",
  (strategy) => {
    const queue = [named(1), queued("any", { request: request({ gpus: 2 }) })];
    const settings = { queues: { default: { strategy } } };
    const { starts } = schedule(input({ nodes: [node("n", { gpus: 3 })] }, queue, { settings }));
    expect(starts).toMatchObject([
      { entry: jobEntry("named"), placements: [{ nodeId: "n", devices: [1] }] },
      { entry: jobEntry("any"), placements: [{ nodeId: "n", devices: [0, 2] }] },
    ]);
  },
);

test("named device: the job on it is evicted, not the one with the least loss", () => {
  const jobs = [holds("cheap", 0, { checkpointedAtMs: 9_000 }), holds("there", 1)];
  const at = input({ nodes: [node("n", { gpus: 3 })], running: jobs }, [named(1)], {
    nowMs: 10_000,
  });
  expect(schedule(at)).toMatchObject({ starts: [], preemptions: [{ victimId: "there" }] });
});

test("named device: while it is in use, the others stay free for other jobs", () => {
  const there = holds("there", 1, { preemptible: false, maxRuntimeMs: 60_000 });
  const pair = queued("pair", { request: request({ gpus: 2 }) });
  const at = input({ nodes: [node("n", { gpus: 3 })], running: [there] }, [named(1), pair]);
  const { starts, pending, reservations } = schedule(at);
  expect(starts).toMatchObject([{ entry: jobEntry("pair"), placements: [{ devices: [0, 2] }] }]);
  expect(reservations[0]).toMatchObject({ entry: jobEntry("named"), startAtMs: 60_000 });
  expect(pending[0]).toMatchObject({
    entry: jobEntry("named"),
    blockers: [{ reason: "InsufficientGpu", requested: 1_000, free: 0, limit: 1_000 }],
  });
});

test("blockers: a missing device index differs from a node without GPUs", () => {
  const nodes = [node("none", { gpus: 0 }), node("one", { gpus: 1 })];
  const { pending } = schedule(input({ nodes }, [named(1)]));
  expect(pending[0]?.blockers).toMatchObject([
    { reason: "InsufficientGpu", resource: "gpu", rejected: 1 },
    { reason: "InsufficientGpu", resource: "gpu_index", rejected: 1 },
  ]);
});

test("named device: it is one whole device", () => {
  const table = new ShapeTable(new Roster([node("n")]));
  for (const wrong of [{ gpus: 2 }, { gpus: 0 }, { gpuMilli: 500 }]) {
    expect(() => table.of(request({ ...wrong, gpuIndex: 0 }))).toThrow("one whole");
  }
});

// holds: sched-stale-plan, sched-exact

import { describe, expect, it } from "vitest";
import type { GangStart } from "../model.ts";
import { jobEntry } from "../plan-entry.ts";
import { schedule } from "../schedule.ts";
import { refusals } from "../testing/refusals.ts";
import { input, node, queued, request, running } from "../testing/scenarios.ts";

const start = (jobId: string, ...places: [string, number[]][]): GangStart => ({
  entry: jobEntry(jobId),
  placements: places.map(([nodeId, devices]) => ({ nodeId, devices })),
  backfilled: false,
});

const cluster = [
  node("n", { gpus: 2 }),
  node("out", { state: "drained" }),
  node("unhealthy", { devices: [{ healthy: true }, { healthy: false }] }),
];

describe("the capacity book", () => {
  it.each([
    ["a job that is no longer queued", start("gone", ["n", [0]]), "unknown_job"],
    ["a part of a gang", start("pair", ["n", [0]]), "partial_gang"],
    ["a node that left", start("one", ["lost", [0]]), "unknown_node"],
    ["a node that drained since", start("one", ["out", [0]]), "node_not_eligible"],
    ["the same device twice", start("two", ["n", [0, 0]]), "wrong_devices"],
    ["too few devices", start("two", ["n", [0]]), "wrong_devices"],
    ["a device that is not there", start("one", ["n", [5]]), "over_capacity"],
    ["a device in use", start("one", ["n", [1]]), "over_capacity"],
    ["an unhealthy device", start("one", ["unhealthy", [1]]), "over_capacity"],
    ["a gang with an unhealthy device", start("two", ["unhealthy", [0, 1]]), "over_capacity"],
    ["another device than the one that is named", start("named", ["n", [0]]), "wrong_devices"],
    ["more CPU than there is", start("wide", ["n", [0]]), "over_capacity"],
    ["one node for two that go apart", start("apart", ["n", [0]], ["n", [1]]), "node_not_eligible"],
  ])("refuses %s", (_, bad, problem) => {
    const busy = running("busy", [{ nodeId: "n", devices: [1] }]);
    const at = input({ nodes: cluster, running: [busy] }, [
      queued("one"),
      queued("pair", { tasks: 2 }),
      queued("two", { request: request({ gpus: 2 }) }),
      queued("named", { request: request({ gpuIndex: 1 }) }),
      queued("apart", { tasks: 2, request: request({ onePerNode: true }) }),
      queued("wide", { request: request({ cpuMilli: 1e9 }) }),
    ]);
    expect(refusals(at, [bad])).toEqual([{ entry: bad.entry, problem }]);
  });

  it("releases all of a refused gang before it checks the next start", () => {
    const at = input({ nodes: cluster }, [queued("pair", { tasks: 2 }), queued("one")]);
    const plan = [start("pair", ["n", [0]], ["n", [0]]), start("one", ["n", [0]])];
    expect(refusals(at, plan)).toEqual([{ entry: jobEntry("pair"), problem: "over_capacity" }]);
  });

  it("refuses the second of two starts of one job", () => {
    const at = input({ nodes: cluster }, [queued("one")]);
    const twice = [start("one", ["n", [0]]), start("one", ["n", [1]])];
    expect(refusals(at, twice)).toEqual([{ entry: jobEntry("one"), problem: "unknown_job" }]);
  });

  it.each([
    [400, undefined],
    [401, "over_capacity"],
  ])(
    "device: a share of 600 leaves room for 400 and no thousandth more: %i",
    (gpuMilli, problem) => {
      const share = (milli: number) => request({ gpuMilli: milli });
      const busy = running("busy", [{ nodeId: "n", devices: [0] }], { request: share(600) });
      const queue = [queued("one", { request: share(gpuMilli) })];
      const at = input({ nodes: [node("n", { gpus: 1 })], running: [busy] }, queue);
      const expected = problem ? [{ entry: jobEntry("one"), problem }] : [];
      expect(refusals(at, [start("one", ["n", [0]])])).toEqual(expected);
      expect(schedule(at).starts).toHaveLength(problem ? 0 : 1);
    },
  );

  it.each([
    ["cpuMilli", 1],
    ["memoryMib", 1],
    ["localSsdGb", 1],
    ["ioOperationsPerSec", 1],
    ["networkMbps", 1],
    ["tasks", 1],
  ] as const)("node: what is left of %s is given out, and not one unit more", (name, unit) => {
    const left = 1_000;
    const { capacity } = node("n");
    const ask = (amount: number) => {
      const scalars = { ...request().scalars, [name]: amount };
      return request({ gpus: 0, scalars });
    };
    const busy = running("busy", [{ nodeId: "n", devices: [] }], {
      request: ask(capacity[name] - left),
    });
    const cluster = [
      node("n", {
        capacity: { ...capacity, cpuMilli: 1e9, memoryMib: 1e9, [name]: capacity[name] },
      }),
    ];
    for (const [amount, count] of [
      [left, 1],
      [left + unit, 0],
    ] as const) {
      const queue = [queued("one", { request: ask(amount) })];
      const at = input({ nodes: cluster, running: [busy] }, queue);
      expect(refusals(at, [start("one", ["n", []])])).toHaveLength(1 - count);
      expect(schedule(at).starts).toHaveLength(count);
    }
  });
});

import { type SubmitJob, submitJobRequest } from "@heddle/contracts/jobs";
import type { SpecChange } from "@heddle/control/jobs/spec-changes";
import { nodeOffer } from "@heddle/control/jobs/testing/specs";
import fc from "fast-check";
import { expect, test } from "vitest";
import { VolatileControl } from "../../test/test-master.ts";
import { PlanBook } from "./plan-book.ts";
import { dryRun } from "./submission.ts";

type Offers = readonly Parameters<typeof nodeOffer>[1][];

/** Asks a cluster of such nodes for dry runs. */
async function clusterOf(offers: Offers) {
  const control = new VolatileControl();
  for (const [at, offer] of offers.entries()) {
    await control.propose({ type: "node.join", atMs: 0, offer: nodeOffer(`n${at}`, offer) });
  }
  const plans = new PlanBook(control);
  return (body: object) => {
    const runs = "algorithm" in body ? {} : { command: "x" };
    return dryRun(control, plans, { name: "n", ...runs, ...body }, []);
  };
}

/** What a reader of the proposal would submit; scaling as docs/scheduler.md tells it. */
function following(spec: SubmitJob, { field, to }: SpecChange): object {
  if (field === "tasks") return { ...spec, tasks: to };
  const resources: Record<string, unknown> = { ...spec.resources, [field]: to };
  if (to === null) delete resources[field];
  if (field !== "all_amounts") return { ...spec, resources };
  delete resources[field];
  const percent = Number.parseInt(String(to), 10);
  const scaled = (amount: number) => Math.max(1, Math.floor((amount * 1_000 * percent) / 100));
  for (const name of ["cpu_cores", "memory_gb", "local_ssd_gb", "network_bandwidth_gbps"]) {
    const value = resources[name];
    if (typeof value === "number") resources[name] = scaled(value) / 1_000;
  }
  const { tasks = 1 } = spec;
  const each = scaled(spec.resources.gpu_count / tasks);
  const split = each < 1_000 ? each : each - (each % 1_000);
  if (spec.resources.gpu_count > 0) resources["gpu_count"] = (split * tasks) / 1_000;
  return { ...spec, resources };
}

/** Follows each change that a dry run proposes, and asks again. */
async function followed(offers: Offers, body: object) {
  const ask = await clusterOf(offers);
  const { verdict, explanation } = ask(body);
  const spec = submitJobRequest.parse({ name: "n", command: "x", ...body });
  const changes = explanation.changes.map((change) => {
    return { ...change, verdict: ask(following(spec, change)).verdict };
  });
  return { verdict, blockers: explanation.blockers, changes };
}

const EIGHT = [{ gpuCount: 8 }, { gpuCount: 8 }];

test("each change that is proposed, when it is followed, has the job start", async () => {
  const offers = fc.array(
    fc.record({
      gpuCount: fc.constantFrom(0, 1, 2, 4, 8),
      gpuType: fc.constantFrom("H100", "L4"),
      cpuMilli: fc.constantFrom(4_000, 64_000),
      localSsdGb: fc.constantFrom(0, 500),
      networkMbps: fc.constantFrom(0, 100_000),
      rack: fc.constantFrom("r1", "r2", ""),
      fabric: fc.constantFrom("f1", ""),
      labels: fc.constantFrom<Record<string, string>>({ zone: "a" }, { zone: "b" }),
    }),
    { minLength: 1, maxLength: 5 },
  );
  const optional = <T>(values: fc.Arbitrary<T>) => fc.option(values, { nil: undefined, freq: 3 });
  const bodies = fc.record({
    tasks: optional(fc.integer({ min: 1, max: 9 })),
    resources: fc.record({
      gpu_count: fc.constantFrom(0, 0.5, 1, 2, 3, 6, 8, 12, 16, 17, 24, 300),
      cpu_cores: fc.constantFrom(0.1, 7, 33.3, 500),
      memory_gb: fc.constantFrom(1, 100, 900.5),
      local_ssd_gb: optional(fc.constantFrom(10, 900)),
      network_bandwidth_gbps: optional(fc.constantFrom(1, 400)),
      same_rack: fc.boolean(),
      infiniband_required: fc.boolean(),
      node_affinity: optional(fc.constantFrom({ zone: "a" }, { zone: "c" })),
    }),
    typed: fc.boolean(),
  });
  let count = 0;
  await fc.assert(
    fc.asyncProperty(offers, bodies, async (nodes, { typed, tasks, resources }) => {
      const { gpu_count: gpus } = resources;
      fc.pre(tasks === undefined || gpus % tasks === 0 || (gpus * 1_000) / tasks < 1_000);
      fc.pre(tasks !== undefined || gpus <= 1 || Number.isInteger(gpus));
      fc.pre(tasks === undefined || Number.isInteger((gpus * 1_000) / tasks));
      const kind = typed && gpus > 0 ? { gpu_type: "H100", gpu_memory_gb: 40 } : {};
      const body = JSON.parse(JSON.stringify({ tasks, resources: { ...resources, ...kind } }));
      const { changes } = await followed(nodes, body);
      count += changes.length;
      for (const change of changes) expect(change).toMatchObject({ verdict: "would_start" });
    }),
    { numRuns: 150 },
  );
  // Far below what any draw gives: the property was not held by empty answers alone.
  expect(count).toBeGreaterThan(3);
});

test("a prime number of GPUs too many is one too many, not a matter of tasks that nobody asked for", async () => {
  const { verdict, changes } = await followed(EIGHT, { resources: { gpu_count: 17 } });
  expect(verdict).toBe("unsatisfiable");
  expect(changes).toMatchObject([{ field: "gpu_count", from: 17, to: 16, verdict: "would_start" }]);
});

test("amounts are those of the whole job, and other numbers of tasks are proposed where they help", async () => {
  const sixes = [{ gpuCount: 6 }, { gpuCount: 6 }, { gpuCount: 4 }];
  const body = { tasks: 2, resources: { gpu_count: 16 } };
  const { changes } = await followed(sixes, body);
  expect(changes).toMatchObject([
    { field: "gpu_count", from: 16, to: 12, verdict: "would_start" },
    { field: "tasks", from: 2, to: 8, verdict: "would_start" },
  ]);
});

test("constraints are proposed to be left out, and shared storage to be what is left", async () => {
  const wanted = { gpu_count: 1, gpu_type: "B300" };
  expect((await followed(EIGHT, { resources: wanted })).changes).toMatchObject([
    { field: "gpu_type", from: "B300", to: null, verdict: "would_start" },
  ]);
  const zoned = { gpu_count: 1, node_affinity: { zone: "z" } };
  expect((await followed(EIGHT, { resources: zoned })).changes).toMatchObject([
    { field: "node_affinity", from: '{"zone":"z"}', to: null, verdict: "would_start" },
  ]);
  const { changes } = await followed(EIGHT, { resources: { shared_storage_gb: 900_000_000 } });
  expect(changes).toMatchObject([{ field: "shared_storage_gb", verdict: "would_start" }]);
});

test("an executor or algorithm that no node offers is a reason of its own, with what they offer", async () => {
  const image = await followed(EIGHT, { container_image: "busybox" });
  expect(image.changes).toEqual([]);
  expect(image.blockers).toMatchObject([
    {
      ...{ reason: "ExecutorUnavailable", wanted: "container", offered: ["process"] },
      message: expect.stringContaining("the nodes offer: process"),
    },
  ]);
  const trainers = [{ executors: ["training"], algorithms: ["ppo", "weave"] }];
  const ask = await clusterOf(trainers);
  expect(ask({ algorithm: "nope" }).never_fits).toMatchObject([
    { reason: "AlgorithmUnavailable", wanted: "nope", offered: ["ppo", "weave"] },
  ]);
});

test("a node is found by its name and by its id", async () => {
  const ask = await clusterOf([
    { name: "first" },
    { name: "second" },
    { name: "third", labels: { name: "own" } },
  ]);
  const placed = (affinity: object) =>
    ask({ resources: { node_affinity: affinity } }).placement.map(({ node }) => node);
  expect(placed({ name: "second" })).toEqual(["n1"]);
  expect(placed({ "heddle/node": "n0" })).toEqual(["n0"]);
  expect(placed({ name: "own" })).toEqual(["n2"]);
  expect(placed({ name: "third" })).toEqual([]);
});

test("blockers say in words how many nodes lack what", async () => {
  const { blockers } = await followed(EIGHT, { resources: { gpu_count: 1, gpu_type: "B300" } });
  expect(blockers.map(({ message }) => message)).toEqual([
    "InsufficientGpu: 2 of 2 nodes have GPUs of other types than `gpu_type`",
  ]);
  const racks = await followed(EIGHT, { tasks: 2, resources: { gpu_count: 16, same_rack: true } });
  expect(racks.blockers[0]?.message).toContain("16000 of 16000 are free, but in no one rack");
});

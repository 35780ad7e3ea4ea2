// holds: sched-explain

import { Grants } from "@heddle/auth/access/grants";
import { type SubmitJob, submitJobRequest } from "@heddle/contracts/api/job-spec";
import type { ControlCommand } from "@heddle/control/command";
import type { SpecChange } from "@heddle/control/jobs/commands/spec-changes";
import { jobId, jobSpec, nodeOffer } from "@heddle/control/jobs/testing/specs";
import { jobEntry } from "@heddle/scheduler/plan-entry";
import fc from "fast-check";
import { expect, test } from "vitest";
import { ListedNodes } from "../../../test/fixtures.ts";
import { VolatileControl } from "../../../test/test-master.ts";
import type { Caller } from "../../http/identity/caller.ts";
import { Scheduling } from "../../orchestration/scheduling/scheduling.ts";
import { PluginConfigs } from "./plugin-configs.ts";
import { dryRun } from "./submission.ts";

const SUBMITTER: Caller = {
  kind: "key",
  id: "k",
  name: "k",
  scopes: ["jobs:create"],
  models: [],
  limits: {},
  project: "default",
  grants: new Grants().allow(["jobs:create"], undefined),
};

type Offers = readonly Parameters<typeof nodeOffer>[1][];

/** Sends dry runs to a cluster of these nodes. */
async function clusterOf(offers: Offers, commands: readonly object[] = []) {
  const control = new VolatileControl();
  for (const [at, offer] of offers.entries()) {
    await control.propose({ type: "node.join", atMs: 0, offer: nodeOffer(`n${at}`, offer) });
  }
  const atMs = Date.now();
  for (const command of commands) await control.propose({ atMs, ...command } as ControlCommand);
  const { explainer } = new Scheduling(control);
  const pluginConfigs = new PluginConfigs(new ListedNodes());
  return (body: object) => {
    const runs = "algorithm" in body ? {} : { command: "x" };
    const submitter = { caller: SUBMITTER, pluginConfigs, ...control.state };
    return dryRun(control, explainer, { name: "n", ...runs, ...body }, submitter);
  };
}

/** What a reader of the proposal would submit; scaling as in docs/internals/scheduler.md. */
function following(spec: SubmitJob, { field, to }: SpecChange): object {
  if (field === "tasks" || field === "max_runtime_hours") return { ...spec, [field]: to };
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

/** Applies each change that a dry run proposes, and asks again. */
async function followed(offers: Offers, body: object, commands: readonly object[] = []) {
  const ask = await clusterOf(offers, commands);
  const { verdict, explanation } = await ask(body);
  const spec = submitJobRequest.parse({ name: "n", command: "x", ...body });
  const changes: (SpecChange & { verdict: string })[] = [];
  for (const change of explanation.changes) {
    changes.push({ ...change, verdict: (await ask(following(spec, change))).verdict });
  }
  const { blockers, start_estimate: start } = explanation;
  return { verdict, blockers, changes, start };
}

/** Starts the job on the first node, from its first device on. */
function started(n: number, change: object, gpus: number): object[] {
  const id = jobId(n);
  const spec = jobSpec({ name: `n${n}`, ...change, resources: { gpu_count: gpus } });
  const placements = [{ nodeId: "n0", devices: [...Array(gpus).keys()] }];
  return [
    { type: "job.submit", jobId: id, spec },
    {
      type: "plan.commit",
      overcommitRatio: 1,
      acknowledgeMs: 1e6,
      admitted: [id],
      unsatisfiable: [],
      preemptions: [],
      expired: [],
      starts: [{ entry: jobEntry(id), placements }],
    },
  ];
}

const quota = (gpuQuota: object) => {
  return { type: "project.set", name: "default", weight: 1, quota: gpuQuota };
};

const EIGHT = [{ gpuCount: 8 }, { gpuCount: 8 }];

test("proposals: each lets the job start when it is applied", async () => {
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
      for (const change of changes) expect(change.verdict).toBe(change.outcome);
    }),
    { numRuns: 150 },
  );
  // Far below what any draw gives: it excludes that all answers were empty.
  expect(count).toBeGreaterThan(3);
});

test("proposals: those of an impossible job hold on the empty cluster too", async () => {
  const offers = fc.array(
    fc.record({
      gpuCount: fc.constantFrom(2, 4, 8),
      rack: fc.constantFrom("r1", "r2", ""),
      fabric: fc.constantFrom("f1", ""),
    }),
    { minLength: 1, maxLength: 4 },
  );
  const resources = fc.record({
    gpu_count: fc.constantFrom(2, 4, 8, 12, 24),
    memory_gb: fc.constantFrom(1, 2_000),
    same_rack: fc.boolean(),
    infiniband_required: fc.boolean(),
  });
  let hopeless = 0;
  let waiting = 0;
  const seed = Date.now() % 1_000_000;
  await fc.assert(
    fc.asyncProperty(
      ...([offers, resources, fc.constantFrom(1, 2, 4), fc.nat(8)] as const),
      async (nodes, wanted, tasks, held) => {
        fc.pre(wanted.gpu_count % tasks === 0);
        const running = started(1, {}, Math.min(held, nodes[0]!.gpuCount));
        const body = { tasks, resources: wanted };
        const { verdict, blockers, changes } = await followed(nodes, body, running);
        for (const change of changes) expect(change.verdict).toBe(change.outcome);
        waiting += changes.filter(({ outcome }) => outcome === "would_wait").length;
        if (verdict !== "unsatisfiable") return;
        hopeless++;
        const emptied = await (await clusterOf(nodes))(body);
        expect(emptied.verdict).toBe("unsatisfiable");
        expect(blockers).toEqual(expect.arrayContaining([...emptied.never_fits]));
        expect(emptied.explanation.blockers).toEqual(emptied.never_fits);
      },
    ),
    { numRuns: 150, seed, verbose: 1 },
  );
  console.log(`seed ${seed}: ${hopeless} hopeless jobs, ${waiting} changes after which they wait`);
  expect(hopeless).toBeGreaterThan(10);
  expect(waiting).toBeGreaterThan(3);
});

test("proposals: a gang for one rack without declared racks may drop that", async () => {
  const nodes = Array.from({ length: 3 }, () => ({ gpuCount: 4, rack: "" }));
  const held = [...started(1, {}, 4), ...started(2, {}, 2)];
  held[3] = JSON.parse(JSON.stringify(held[3]).replace('"n0"', '"n1"')) as object;
  const body = { tasks: 6, resources: { gpu_count: 12, same_rack: true } };
  const { verdict, blockers, changes } = await followed(nodes, body, held);
  expect(verdict).toBe("unsatisfiable");
  expect(blockers.map(({ reason }) => reason)).toEqual(["TopologyUnavailable", "InsufficientGpu"]);
  expect(changes).toMatchObject([
    { field: "same_rack", from: true, to: false, outcome: "would_wait", verdict: "would_wait" },
  ]);
});

test("proposals: a prime number of GPUs is reduced by one, not split into tasks", async () => {
  const { verdict, changes } = await followed(EIGHT, { resources: { gpu_count: 17 } });
  expect(verdict).toBe("unsatisfiable");
  expect(changes).toMatchObject([{ field: "gpu_count", from: 17, to: 16, verdict: "would_start" }]);
});

test("proposals: amounts are the whole job's; other task counts if they help", async () => {
  const sixes = [{ gpuCount: 6 }, { gpuCount: 6 }, { gpuCount: 4 }];
  const body = { tasks: 2, resources: { gpu_count: 16 } };
  const { changes } = await followed(sixes, body);
  expect(changes).toMatchObject([
    { field: "gpu_count", from: 16, to: 12, verdict: "would_start" },
    { field: "tasks", from: 2, to: 8, verdict: "would_start" },
  ]);
});

test("proposals: constraints are dropped, shared storage is reduced to the rest", async () => {
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

test("blockers: an executor or algorithm without a node is named, with the offer", async () => {
  const image = await followed(EIGHT, { container_image: "busybox" });
  expect(image.changes).toEqual([]);
  expect(image.blockers).toMatchObject([
    {
      reason: "ExecutorUnavailable",
      wanted: "container",
      offered: ["process"],
      message: expect.stringContaining("the nodes offer: process"),
    },
  ]);
  const trainers = [{ executors: ["training"], algorithms: ["ppo", "weave"] }];
  // A worker that has not reported its offer prevents an immediate refusal.
  const ask = await clusterOf([...trainers, { executors: ["training"], algorithms: undefined }]);
  expect((await ask({ algorithm: "nope" })).never_fits).toMatchObject([
    { reason: "AlgorithmUnavailable", wanted: "nope", offered: ["ppo", "weave"] },
  ]);
});

test("nodes: one is found by its name and by its id", async () => {
  const ask = await clusterOf([
    { name: "first" },
    { name: "second" },
    { name: "third", labels: { name: "own" } },
  ]);
  const placed = async (affinity: object) => {
    const { placement } = await ask({ resources: { node_affinity: affinity } });
    return placement.map(({ node }) => node);
  };
  expect(await placed({ name: "second" })).toEqual(["n1"]);
  expect(await placed({ "heddle/node": "n0" })).toEqual(["n0"]);
  expect(await placed({ name: "own" })).toEqual(["n2"]);
  expect(await placed({ name: "third" })).toEqual([]);
});

test("blockers: each says how many nodes lack what", async () => {
  const { blockers } = await followed(EIGHT, { resources: { gpu_count: 1, gpu_type: "B300" } });
  expect(blockers.map(({ message }) => message)).toEqual([
    "InsufficientGpu: 2 of 2 nodes have GPUs of other types than `gpu_type`",
  ]);
  const racks = await followed(EIGHT, { tasks: 2, resources: { gpu_count: 16, same_rack: true } });
  expect(racks.blockers[0]?.message).toContain("16 of 16 are free, but not within one rack");
});

test("proposals: the rest of a GPU quota, with a start once it is free", async () => {
  const commands = [quota({ gpuMilli: 2_000 }), ...started(1, { max_runtime_hours: 2 }, 1)];
  const { changes, start, blockers } = await followed(
    EIGHT,
    { resources: { gpu_count: 2 } },
    commands,
  );
  expect(blockers.map(({ reason }) => reason)).toEqual(["QuotaExceeded"]);
  expect(changes).toMatchObject([{ field: "gpu_count", from: 2, to: 1, verdict: "would_start" }]);
  const inHours = (Date.parse(start.likely ?? "") - Date.now()) / 3_600_000;
  expect(inHours).toBeGreaterThan(1.9);
  expect(inHours).toBeLessThan(2.1);
});

test("proposals: a quota of GPU-hours leaves fewer GPUs or a shorter run", async () => {
  const hours = { max_runtime_hours: 5, resources: { gpu_count: 2 } };
  const { changes } = await followed(EIGHT, hours, [quota({ gpuHours: 8 })]);
  expect(changes).toMatchObject([
    { field: "max_runtime_hours", from: 5, to: 4, verdict: "would_start" },
    { field: "gpu_count", from: 2, to: 1, verdict: "would_start" },
  ]);
  const setting = { type: "setting.put", name: "shared_storage_gb", value: 10 };
  const shared = await followed(EIGHT, { resources: { shared_storage_gb: 16 } }, [setting]);
  expect(shared.verdict).toBe("unsatisfiable");
  expect(shared.changes).toMatchObject([
    { field: "shared_storage_gb", from: 16, to: 10, verdict: "would_start" },
  ]);
});

test("proposals: a run that ends before a reservation, or a higher priority", async () => {
  const head = jobSpec({ name: "head", resources: { gpu_count: 8 } });
  const commands = [
    ...started(1, { max_runtime_hours: 10 }, 1),
    { type: "job.submit", jobId: jobId(2), spec: head },
  ];
  const body = { max_runtime_hours: 20, resources: { gpu_count: 1, preemptible: true } };
  const { changes, blockers, start } = await followed([{ gpuCount: 8 }], body, commands);
  expect(blockers.map(({ reason }) => reason)).toEqual(["PriorityBehind"]);
  expect(changes).toMatchObject([
    { field: "priority", from: 0, to: 1, verdict: "would_start" },
    { field: "qos_level", from: "standard", to: "guaranteed", verdict: "would_start" },
    { field: "max_runtime_hours", from: 20, verdict: "would_start" },
  ]);
  const shorter = Number(changes.at(-1)?.to);
  expect(shorter).toBeGreaterThan(9);
  expect(shorter).toBeLessThan(9.6);
  expect(Date.parse(start.earliest ?? "")).toBeGreaterThan(Date.now() + 3_600_000);
});

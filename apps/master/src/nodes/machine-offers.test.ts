// holds: engine-memory-claim, ops-offers, ops-containers-offer

import { eventually } from "@heddle/base/testing/eventually";
import type { ClusterResourcesReply } from "@heddle/contracts/api/cluster";
import { nodeOffer } from "@heddle/control/jobs/testing/specs";
import { afterEach, beforeEach, expect, test } from "vitest";
import { DEPLOYMENT, MODEL, NO_DIVISIONS, replicaOn } from "../../test/fixtures.ts";
import { JobApi } from "../../test/job-api.ts";
import type { NodeView } from "./node-directory.ts";

const MIB = 2 ** 20;
/** Less the reserve of a sixteenth, 15 GiB remain. */
const MEMORY_BYTES = 16_384 * MIB;
const USABLE_MIB = 15_360;

let api: JobApi;
beforeEach(async () => {
  api = await JobApi.start();
});
afterEach(() => api.close());

/** A worker that always reports, with one replica of this size. */
function worker(id: string, replicaMib: number, hostId: string | undefined = "h"): NodeView {
  const node = replicaOn(id, "tiny", "ready");
  const { labels, taints, rack, fabric, executors, incarnation } = nodeOffer(id);
  const reported = { labels, taints, rack, fabric, executors, incarnation };
  return {
    ...node,
    hostId,
    memoryBytes: MEMORY_BYTES,
    lastSeenMs: Date.now() + 3_600_000,
    replicas: node.replicas.map((replica) => {
      return { ...replica, load: { ...replica.load, residentBytes: replicaMib * MIB } };
    }),
    offer: {
      ...reported,
      algorithms: [],
      environments: [],
      algorithmSchemas: {},
      localSsdBytes: 100e9,
      ioOperationsPerSec: 1_000,
      networkMbps: 10_000,
      maxTasks: 128,
      isMaxTasksChosen: false,
    },
  };
}

/** A parameter server of the machine whose process uses this much memory. */
function server(mib: number): NodeView {
  const { offer: _, replicas: __, ...node } = worker("ps", 0);
  return { ...node, kind: "parameter-server", replicas: [], residentBytes: mib * MIB };
}

const limited = (view: NodeView, id: string, mib: number, cpuMilli = 0): NodeView => {
  const limits = [...(view.limits ?? []), { id, memoryBytes: mib * MIB, cpuMilli }];
  return { ...view, limits };
};

function offers(): Record<string, number> {
  const { nodes } = api.master.control.state;
  return Object.fromEntries([...nodes].map(([id, { offer }]) => [id, offer.memoryMib]));
}

async function offersBecome(views: readonly NodeView[], expected: Record<string, number>) {
  api.master.directory.views = [...views];
  const text = JSON.stringify(expected);
  await eventually(() => JSON.stringify(offers()) === text, undefined, 100_000).catch(() => {});
  expect(offers()).toEqual(expected);
}

const asks = (mib: number) => ({
  tasks: 1,
  resources: { gpu_count: 0, cpu_cores: 0.1, memory_gb: (mib * MIB) / 1e9 },
});

async function verdict(mib: number): Promise<unknown> {
  const { body } = await api.call("POST", "/jobs?dry_run=true", {
    name: "n",
    command: "true",
    ...asks(mib),
  });
  return (body as { readonly verdict?: unknown }).verdict;
}

async function resources() {
  const { body } = await api.call("GET", "/cluster/resources");
  return body as ClusterResourcesReply;
}

test("one worker: jobs get the memory less the reserve and the replicas'", async () => {
  await offersBecome([worker("a", 0)], { a: USABLE_MIB });
  expect(await verdict(USABLE_MIB)).toBe("would_start");
  expect(await verdict(USABLE_MIB + 1)).toBe("unsatisfiable");
  await offersBecome([worker("a", 2_048)], { a: USABLE_MIB - 2_048 });
  expect(await verdict(USABLE_MIB - 2_048)).toBe("would_start");
  expect(await verdict(USABLE_MIB - 2_047)).toBe("unsatisfiable");
  const { totals } = await resources();
  expect(totals.memory_bytes).toMatchObject({
    offered: MEMORY_BYTES,
    in_use: 2_048 * MIB,
    available: (USABLE_MIB - 2_048) * MIB,
  });
});

test("one worker: the offer follows replicas in steps, and rises when they are gone", async () => {
  await offersBecome([worker("a", 2_048)], { a: USABLE_MIB - 2_048 });
  await offersBecome([worker("a", 2_049)], { a: USABLE_MIB - 2_304 });
  const index = api.master.control.appliedIndex;
  api.master.directory.views = [worker("a", 2_047)];
  await new Promise((resolve) => setTimeout(resolve, 1_500));
  expect(api.master.control.appliedIndex).toBe(index);
  await offersBecome([worker("a", 0)], { a: USABLE_MIB });
});

test("two workers of one machine: they divide its memory, others do not", async () => {
  const views = [worker("a", 0), worker("b", 2_048), worker("c", 0, "other"), worker("d", 0, "")];
  const half = (USABLE_MIB - 2_048) / 2;
  await offersBecome(views, { a: half, b: half, c: USABLE_MIB, d: USABLE_MIB });
  const { totals } = await resources();
  expect(totals.memory_bytes).toMatchObject({
    offered: 3 * MEMORY_BYTES,
    available: (3 * USABLE_MIB - 2_048) * MIB,
  });
});

test("second worker: it offers no memory that tasks of the first hold", async () => {
  await offersBecome([worker("a", 0)], { a: USABLE_MIB });
  const id = await api.submit(asks(12_288));
  await api.run(id);
  const views = [worker("a", 0), worker("b", 0)];
  await offersBecome(views, { a: 12_288, b: USABLE_MIB - 12_288 });
  expect(await verdict(USABLE_MIB - 12_288)).toBe("would_start");
  expect(await verdict(USABLE_MIB - 12_287)).not.toBe("would_start");
  await api.report(id, "exited", { exitCode: 0 } as never);
  await offersBecome(views, { a: USABLE_MIB / 2, b: USABLE_MIB / 2 });
});

test("silent worker: once it is lost, only its tasks keep memory", async () => {
  await offersBecome([worker("b", 0)], { b: USABLE_MIB });
  await api.run(await api.submit(asks(4_096)));
  const views = [worker("a", 0), worker("b", 0)];
  await offersBecome(views, { b: USABLE_MIB / 2, a: USABLE_MIB / 2 });
  api.master.directory.views = [worker("a", 0)];
  await new Promise((resolve) => setTimeout(resolve, 1_500));
  expect(offers()["a"]).toBe(USABLE_MIB / 2);
  const fencedAtMs = Date.now() + 3_600_000;
  await api.propose({ type: "node.lost", nodeIds: ["b"], fencedAtMs });
  await offersBecome([worker("a", 0)], { b: USABLE_MIB / 2, a: USABLE_MIB - 4_096 });
});

/** One amount of each offer. */
function amounts(
  amount: "cpuMilli" | "localSsdGb" | "ioOperationsPerSec" | "networkMbps" | "maxTasks",
) {
  const { nodes } = api.master.control.state;
  return Object.fromEntries([...nodes].map(([id, { offer }]) => [id, offer[amount]]));
}

test("two workers of one machine: they divide its cores, network and disk", async () => {
  const views = [worker("a", 0), worker("b", 0), worker("c", 0, "other")];
  await offersBecome(views, { a: USABLE_MIB / 2, b: USABLE_MIB / 2, c: USABLE_MIB });
  expect(amounts("cpuMilli")).toEqual({ a: 1_000, b: 1_000, c: 2_000 });
  expect(amounts("networkMbps")).toEqual({ a: 5_000, b: 5_000, c: 10_000 });
  // On separate disks each has all of its own.
  expect(amounts("localSsdGb")).toEqual({ a: 100, b: 100, c: 100 });
  const onDisk = views.map((view) => ({ ...view, diskId: "d" }));
  api.master.directory.views = onDisk;
  await eventually(() => amounts("localSsdGb")["a"] === 50);
  expect(amounts("localSsdGb")).toEqual({ a: 50, b: 50, c: 100 });
  expect(amounts("ioOperationsPerSec")).toEqual({ a: 500, b: 500, c: 1_000 });
  const { totals } = await resources();
  expect(totals.cpu_cores).toMatchObject({ offered: 4, available: 4 });
});

test("workers of one machine: they divide its task places unless these are chosen", async () => {
  const chosen = worker("d", 0);
  const offer = { ...chosen.offer!, maxTasks: 100, isMaxTasksChosen: true };
  const others = [worker("c", 0, "other"), { ...chosen, offer }];
  const become = async (views: readonly NodeView[], expected: Record<string, number>) => {
    api.master.directory.views = [...views, ...others];
    await expect.poll(() => amounts("maxTasks")).toEqual(expected);
  };
  await become([worker("a", 0)], { a: 128, c: 128, d: 100 });
  // A silent worker leaves the next one its share.
  await become([worker("b", 0)], { a: 128, b: 64, c: 128, d: 100 });
  await become([worker("a", 0), worker("b", 0)], { a: 64, b: 64, c: 128, d: 100 });
  // However many there are, each takes a task.
  api.master.directory.views = Array.from({ length: 130 }, (_, at) => worker(`x${at}`, 0, "x"));
  await expect.poll(() => amounts("maxTasks")["x129"]).toBe(1);
});

test("second worker: it offers no cores that tasks of the first hold", async () => {
  await offersBecome([worker("a", 0)], { a: USABLE_MIB });
  const resources = { gpu_count: 0, cpu_cores: 1.5, memory_gb: 0.1 };
  await api.run(await api.submit({ tasks: 1, resources }));
  const half = { a: USABLE_MIB / 2, b: USABLE_MIB / 2 };
  await offersBecome([worker("a", 0), worker("b", 0)], half);
  expect(amounts("cpuMilli")).toEqual({ a: 1_500, b: 500 });
});

test("workers in containers: the container's limits bound each offer", async () => {
  // Less the reserve: a sixteenth, or half a GiB.
  const views = [limited(worker("a", 0), "x", 4_096, 500), limited(worker("b", 1_024), "y", 4_096)];
  await offersBecome(views, { a: 3_584, b: 2_560 });
  expect(amounts("cpuMilli")).toEqual({ a: 500, b: 1_000 });
  const together = [worker("a", 0), worker("b", 1_024)].map((view) => limited(view, "x", 8_192));
  await offersBecome(together, { a: 3_328, b: 3_328 });
});

test("parameter server: the memory of its shards is not offered", async () => {
  await offersBecome([worker("a", 0), server(256)], { a: USABLE_MIB });
  await offersBecome([worker("a", 0), server(2_304)], { a: USABLE_MIB - 2_048 });
  await offersBecome([worker("a", 0), server(100)], { a: USABLE_MIB });
});

test("lost worker: its replicas keep memory while that is in use", async () => {
  const views = [worker("a", 0), worker("b", 2_048)];
  const half = (USABLE_MIB - 2_048) / 2;
  await offersBecome(views, { a: half, b: half });
  const [a] = views as [NodeView, NodeView];
  const using = (mib: number) => [{ ...a, memoryUsedBytes: mib * MIB }];
  api.master.directory.views = using(8_192);
  await api.propose({ type: "node.lost", nodeIds: ["b"], fencedAtMs: Date.now() + 3_600_000 });
  await offersBecome(using(8_192), { a: USABLE_MIB - 2_048, b: half });
  // They have ended: the machine uses less than they held.
  await offersBecome(using(512), { a: USABLE_MIB - 512, b: half });
});

/** Registers the model `large` with weights of that size. */
async function register(mib: number, options: { readonly device?: string }): Promise<void> {
  const weights = { ...DEPLOYMENT.spec.weights, key: "large", sizeBytes: mib * MIB };
  const spec = { ...DEPLOYMENT.spec, key: "large", weights, options };
  const model = { ...MODEL, id: "large", deployment: "large" };
  const deployment = { ...DEPLOYMENT, spec };
  await api.propose({ type: "model.register", model, deployment });
}

/** The reasons for which a model with weights of that size waits on these workers. */
async function waitsFor(mib: number, views: readonly NodeView[], options = { device: "cpu" }) {
  await register(mib, options);
  api.master.directory.views = [...views];
  const { body } = await api.call("GET", "/models/large");
  await api.propose({ type: "model.remove", id: "large" });
  return (body as unknown as { readonly waiting_for: string[] }).waiting_for;
}

test("model: it waits, with the reason, while jobs hold the memory it needs", async () => {
  const views = [worker("a", 2_048)];
  await offersBecome(views, { a: USABLE_MIB - 2_048 });
  const free = USABLE_MIB - 2_048 - 8_192;
  await api.run(await api.submit(asks(8_192)));
  expect(await waitsFor(free, views)).toEqual([]);
  const full = `a has ${free} MiB of memory beside what jobs and other models hold, and large needs ${free + 1} MiB: end jobs there, or add a worker`;
  expect(await waitsFor(free + 1, views)).toEqual([full]);
  expect(await waitsFor(free + 1, [...views, worker("c", 0, "other")])).toEqual([full]);
  // A worker has said that cache and process take a MiB.
  api.master.directory.divisions = {
    ...NO_DIVISIONS,
    of: () => ({ wholeBytes: (free + 1) * MIB }),
  };
  expect(await waitsFor(free, views)).toEqual([full]);
  api.master.directory.divisions = NO_DIVISIONS;
  // The machine's memory does not matter where a GPU may hold the weights.
  const gpu = { index: 0, uuid: "g", name: "H100", memoryBytes: 80e9, simulated: false, fault: "" };
  const figures = {
    memoryUsedBytes: 0,
    utilizationPercent: 0,
    temperatureCelsius: 0,
    powerWatts: 0,
  };
  const withGpu = views.map((view) => ({ ...view, gpus: [{ ...gpu, ...figures }] }));
  expect(await waitsFor(free + 1, withGpu, {} as never)).toEqual([]);
});

test("loading replica: its future memory is offered to no job", async () => {
  await register(4_096, { device: "cpu" });
  const view = worker("a", 0);
  const loading = { deployment: "large", phase: "loading" } as const;
  const replicas = view.replicas.map((each) => ({ ...each, ...loading }));
  await offersBecome([{ ...view, replicas }], { a: USABLE_MIB - 4_096 });
});

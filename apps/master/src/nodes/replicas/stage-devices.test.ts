// holds: shard-gpus

import { AppError } from "@heddle/base/errors";
import type { DeploymentSpec } from "@heddle/contracts/engine";
import type { ControlCommand } from "@heddle/control/command";
import { nodeOffer, scheduledModel } from "@heddle/control/jobs/testing/specs";
import { expect, test } from "vitest";
import { VolatileControl } from "../../../test/test-master.ts";
import type { NodeView } from "../node-directory.ts";
import { StageDevices } from "./stage-devices.ts";
import type { StageCandidate, StagedReplica } from "./staged-replica.ts";
import { AFTER_ADOPTION_MS, StageBench, stagePlacesOf } from "./testing/stage-bench.ts";

const GIB = 2 ** 30;
const KEEPS_GPUS_MS = 30_000;

/** Nodes with two GPUs each, and the model m, each stage of which has one. */
async function benchOf(...ids: string[]) {
  const control = new VolatileControl();
  const replicas = new Map<string, string[]>(ids.map((id) => [id, []]));
  const uuids = new Map<string, string>();
  /** Nodes that have not reported yet. */
  const isSilent = new Set<string>();
  const nodes = () =>
    ids.map((id) => ({
      id,
      hostId: "host",
      attachedAtMs: 0,
      lastSeenMs: isSilent.has(id) ? 0 : 1,
      gpus: [0, 1].map((index) => {
        const uuid = `${uuids.get(id) ?? id}-${index}`;
        return { index, uuid, memoryBytes: 16 * GIB, simulated: false };
      }),
      replicas: replicas.get(id)!.map((deployment) => ({ deployment })),
    })) as unknown as NodeView[];
  for (const id of ids) {
    await control.propose({ type: "node.join", atMs: 1, offer: nodeOffer(id, { gpuCount: 2 }) });
  }
  const made = scheduledModel("m", 1, 1) as Extract<ControlCommand, { type: "model.register" }>;
  const spec = { ...made.deployment.spec, placement: { mode: "sharded" } } as DeploymentSpec;
  await control.propose({ ...made, deployment: { ...made.deployment, spec } });
  const time = { nowMs: 0 };
  const clock = { monotonicMs: () => time.nowMs, wallMs: () => 2 };
  const log = { info() {}, warn() {}, error() {} };
  const devices = new StageDevices({ control, clock, log, nodes });
  /** Follows these stages, each a key and its node. */
  const follow = async (...stages: [string, string][]) => followKeeping([], stages);
  const followKeeping = async (keeping: string[], stages: [string, string][]) => {
    const places = new Map(stages.map(([key, node]) => [key, new Map([[node, spec]])]));
    const settled = new Set(["m"]);
    devices.follow({ places, settled, keeping: new Set(keeping), lacking: new Set() });
    await new Promise((resolve) => setImmediate(resolve));
  };
  const held = () => [...control.state.replicas.values()].map(({ nodeId }) => nodeId).sort();
  return { control, devices, follow, followKeeping, held, isSilent, replicas, spec, time, uuids };
}

test("stage devices: workers that report the same GPU share its memory", async () => {
  const { devices, uuids } = await benchOf("a", "b", "c");
  expect(devices.memory()("a", "m")).toBe(16 * GIB);
  uuids.set("b", "a");
  const memory = devices.memory();
  expect(["a", "b", "c", "d"].map((id) => memory(id, "m") / GIB)).toEqual([8, 8, 16, 0]);
});

test("stage devices: a stage is loaded when GPUs are held for it, and with these", async () => {
  const { devices, spec } = await benchOf("a", "b");
  const stage = { ...spec, key: "m#b/0" };
  expect(devices.specOn(stage, "a")).toBeUndefined();
  await devices.reserve("m", ["a", "b"]);
  const on = devices.specOn(stage, "a");
  expect(on).toEqual({ ...stage, options: { ...stage.options, device: "0" } });
  expect(devices.specOn(stage, "a")).toBe(on);
  expect(devices.specOn({ ...spec, key: "other" }, "a")).toMatchObject({ options: {} });
});

test("stage devices: where one worker has no free GPU none is held", async () => {
  const { control, devices, held } = await benchOf("a", "b");
  for (const device of [0, 1]) {
    const quarantine = { nodeId: "b", device, why: "Xid 79" };
    await control.propose({ type: "node.quarantine", atMs: 2, ...quarantine });
  }
  await expect(devices.reserve("m", ["a", "b"])).rejects.toThrow(/stages of m get no GPUs now/);
  expect(held()).toEqual([]);
});

test("stage devices: they follow a stage that moves, when it has left the old worker", async () => {
  const { devices, follow, held, isSilent, replicas } = await benchOf("a", "b", "c");
  await devices.reserve("m", ["a", "b"]);
  replicas.set("a", ["m#b/0"]);
  replicas.set("b", ["m"]);
  await follow(["m", "b"], ["m#b/0", "a"]);
  expect(held()).toEqual(["a", "b"]);
  await follow(["m", "b"], ["m#b/0", "c"]);
  expect(held()).toEqual(["a", "b", "c"]);
  replicas.set("a", []);
  isSilent.add("a");
  await follow(["m", "b"], ["m#b/0", "c"]);
  expect(held()).toEqual(["a", "b", "c"]);
  isSilent.clear();
  await follow(["m", "b"], ["m#b/0", "c"]);
  expect(held()).toEqual(["b", "c"]);
});

test("stage devices: a place of the whole model, of an earlier version, is released", async () => {
  const { control, devices, follow, followKeeping, held } = await benchOf("a", "b", "c");
  await devices.reserve("m", ["a", "b", "c"]);
  const [key, place] = [...control.state.replicas].find(([, { nodeId }]) => nodeId === "c")!;
  (control.state.replicas as Map<string, typeof place>).set(key, { ...place, stage: undefined });
  await followKeeping(
    ["m"],
    [
      ["m", "b"],
      ["m#b/0", "a"],
    ],
  );
  expect(held()).toEqual(["a", "b", "c"]);
  await follow(["m", "b"], ["m#b/0", "a"]);
  expect(held()).toEqual(["a", "b"]);
});

test("stage devices: what a quota refuses is not proposed again and again", async () => {
  const { control, devices, follow, held, time } = await benchOf("a", "b");
  await devices.reserve("m", ["a"]);
  const setQuota = (gpuMilli: number) =>
    control.propose({
      type: "project.set",
      atMs: 2,
      name: "default",
      weight: 1,
      quota: { gpuMilli },
    });
  await setQuota(1_000);
  const moved = () => follow(["m", "a"], ["m#a/0", "b"]);
  await moved();
  const { appliedIndex } = control;
  await moved();
  expect([control.appliedIndex, held()]).toEqual([appliedIndex, ["a"]]);
  await setQuota(2_000);
  time.nowMs += 5_000;
  await moved();
  expect(held()).toEqual(["a", "b"]);
});

test("stage devices: stages queue for what they lack, on any worker with the memory", async () => {
  const { control, devices, follow } = await benchOf("a", "b", "c", "d", "e");
  await devices.reserve("m", ["a"]);
  const bytesOf = new Map([
    ["a", 9],
    ["b", 8],
    ["c", 7],
    ["d", 5],
    ["e", 6],
  ]);
  const able = [...bytesOf].map(([id, bytes]) => {
    return { node: { id }, memoryBytes: () => bytes } as unknown as StageCandidate;
  });
  const replicaOn = (...parts: [string, number][]) =>
    ({
      of: { key: "m" },
      parts: parts.map(([node, memoryBytes]) => ({ node, memoryBytes })),
    }) as unknown as StagedReplica;
  const replica = replicaOn(["a", 9], ["d", 5], ["e", 6]);
  expect(await devices.secure(replica, able)).toBe(false);
  const claim = { stages: 2, memoryBytes: 6, nodes: ["d", "e", "b", "c"] };
  expect(control.state.stageClaims.get("m")).toEqual(claim);
  const { appliedIndex } = control;
  await devices.secure(replica, able);
  expect(control.appliedIndex).toBe(appliedIndex);
  expect(await devices.secure(replicaOn(["a", 9]), able)).toBe(true);
  await follow(["m", "a"]);
  expect(control.state.stageClaims.size).toBe(0);
});

/** Workers whose stages have GPUs, as they are granted. */
function gpuBench(...names: string[]) {
  const bench = new StageBench(...names);
  const held = new Set<string>();
  const claims: string[][] = [];
  let fault: AppError | undefined;
  const queue = { isEmpty: true };
  bench.devices = {
    serves: () => true,
    held: () => held,
    memory: () => () => 500,
    secure: async ({ parts }) => {
      const lacking = parts.map(({ node }) => node).filter((node) => !held.has(node));
      if (lacking.length === 0) return true;
      if (fault) throw fault;
      claims.push(lacking);
      if (queue.isEmpty) for (const node of lacking) held.add(node);
      return false;
    },
    need: () => "1 GPU",
  };
  const refuse = (message: string | undefined) => {
    fault = message === undefined ? undefined : new AppError("conflict", message);
  };
  return { bench, claims, held, queue, refuse };
}

test("staged replicas: one is planned on workers with GPUs, when it has got them", async () => {
  const { bench, claims, refuse } = gpuBench("a", "b", "c", "d");
  bench.add("b", undefined, 0);
  refuse("they are gone");
  await bench.places();
  bench.nowMs += AFTER_ADOPTION_MS;
  expect(stagePlacesOf(await bench.places())).toEqual([]);
  expect(bench.staged.notes().get("m")?.misfit).toBe("they are gone");
  refuse(undefined);
  bench.nowMs += AFTER_ADOPTION_MS;
  await bench.places();
  expect(stagePlacesOf(await bench.places())).toEqual(["m d", "m#d/0 a", "m#d/1 c"]);
  expect(claims).toEqual([["a", "c", "d"]]);
});

test("staged replicas: one waits for GPUs, and is planned on those that it gets", async () => {
  const { bench, claims, held, queue } = gpuBench("a", "b", "c", "d");
  queue.isEmpty = false;
  for (const name of bench.workers.keys()) bench.add(name, undefined, 0);
  await bench.places();
  bench.nowMs += AFTER_ADOPTION_MS;
  for (let seconds = 0; seconds < 20; seconds++) {
    bench.nowMs += 1_000;
    expect(stagePlacesOf(await bench.places())).toEqual([]);
  }
  expect(claims).toEqual([["a", "b", "c"]]);
  expect(bench.staged.notes().get("m")?.misfit).toBeUndefined();
  for (const name of ["c", "d"]) bench.add(name, undefined, 500);
  await bench.places();
  expect([claims.at(-1), bench.plans]).toEqual([["c", "d"], 2]);
  for (const name of ["b", "c", "d"]) {
    held.add(name);
    bench.add(name, undefined, 500);
  }
  await bench.places();
  expect(stagePlacesOf(await bench.places())).toEqual(["m d", "m#d/0 b", "m#d/1 c"]);
  expect(claims.length).toBe(2);
});

test("staged replicas: a stage whose GPU is another's is unloaded until it is free", async () => {
  const { bench, held } = gpuBench("a", "b", "c");
  await bench.places();
  bench.nowMs += AFTER_ADOPTION_MS;
  bench.load(await bench.places());
  held.delete("a");
  bench.add("a", undefined, 0);
  bench.planFault = () => new AppError("unprocessable", "two workers are too few");
  expect(stagePlacesOf(await bench.places())).toEqual(["m c", "m#c/1 b"]);
  bench.add("a", undefined, 500);
  expect(stagePlacesOf(await bench.places())).toEqual(["m c", "m#c/0 a", "m#c/1 b"]);
});

test("staged replicas: too few workers with GPUs are named with what each needs", async () => {
  const { bench } = gpuBench("a");
  await bench.places();
  bench.nowMs += AFTER_ADOPTION_MS;
  await bench.places();
  const misfit =
    "m needs two workers, each with 1 GPU for its stage; a could have one: start another such worker";
  expect(bench.staged.notes().get("m")).toEqual({ misfit });
});

test("staged replicas: a stage whose GPU fails goes to a worker with a healthy one", async () => {
  const { bench } = gpuBench("a", "b", "c", "d");
  await bench.places();
  bench.nowMs += AFTER_ADOPTION_MS;
  bench.load(await bench.places());
  // Its place remains.
  bench.add("a", undefined, 0);
  expect(stagePlacesOf(await bench.places())).toEqual(["m c", "m#c/0 d", "m#c/1 b"]);
});

test("staged replicas: GPUs await the worker of the last stage for a while", async () => {
  const { bench } = gpuBench("a", "b", "c");
  await bench.places();
  bench.nowMs += AFTER_ADOPTION_MS;
  bench.load(await bench.places());
  expect(bench.keepsGpus).toBe(false);
  const last = bench.workers.get("c")!;
  bench.workers.delete("c");
  bench.planFault = () => new AppError("unprocessable", "two workers are too few");
  await bench.places();
  bench.nowMs += AFTER_ADOPTION_MS;
  expect(stagePlacesOf(await bench.places())).toEqual([]);
  expect(bench.keepsGpus).toBe(true);
  bench.nowMs += KEEPS_GPUS_MS - 1;
  await bench.places();
  expect(bench.keepsGpus).toBe(true);
  bench.nowMs += 1;
  await bench.places();
  expect(bench.keepsGpus).toBe(false);
  bench.workers.set("c", last);
  bench.planFault = () => undefined;
  bench.nowMs += KEEPS_GPUS_MS;
  await bench.places();
  expect(stagePlacesOf(await bench.places())).toEqual(["m c", "m#c/0 a", "m#c/1 b"]);
  expect(bench.keepsGpus).toBe(false);
});

test("staged replicas: workers whose stages ignore devices get no stage on GPUs", async () => {
  const { bench } = gpuBench("a", "b", "c", "d");
  const { node } = bench.workers.get("a")!;
  const features = node.register.engineFeatures;
  features.splice(features.indexOf("stage-devices"), 1);
  await bench.places();
  bench.nowMs += AFTER_ADOPTION_MS;
  await bench.places();
  expect(stagePlacesOf(await bench.places())).toEqual(["m d", "m#d/0 b", "m#d/1 c"]);
});

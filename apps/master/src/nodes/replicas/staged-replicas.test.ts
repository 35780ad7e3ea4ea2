// holds: shard-workers, shard-mixed, shard-drain

import { AppError } from "@heddle/base/errors";
import type { LlamaDeployment } from "@heddle/contracts/engine";
import { expect, test } from "vitest";
import {
  AFTER_ADOPTION_MS,
  STAGE_SIZES,
  STAGED_SPEC,
  StageBench,
  stagePlacesOf,
} from "./testing/stage-bench.ts";

test("staged replicas: each stage gets its key, and the last one the others' places", async () => {
  const bench = new StageBench("a", "b", "c", "d");
  bench.nowMs = AFTER_ADOPTION_MS;
  await bench.places();
  bench.nowMs += AFTER_ADOPTION_MS;
  const places = await bench.places();
  expect(stagePlacesOf(places)).toEqual(["m c", "m#c/0 a", "m#c/1 b"]);
  const last = places.get("m")?.get("c") as LlamaDeployment;
  expect(last.stage).toMatchObject({ from: 2, to: 3, driver: "c", ...STAGE_SIZES });
  expect(last.stage?.peers.map(({ address }) => address)).toEqual(["a:1", "b:1"]);
  expect((await bench.places()).get("m")?.get("c")).toBe(last);
  expect(bench.plans).toBe(1);
});

test("staged replicas: of many workers those with the most memory are planned with", async () => {
  const bench = new StageBench();
  for (let i = 0; i < 20; i++) bench.add(`w${10 + i}`, undefined, i === 3 || i > 16 ? 900 : 500);
  bench.nowMs = AFTER_ADOPTION_MS;
  await bench.places();
  bench.nowMs += AFTER_ADOPTION_MS;
  await bench.places();
  expect(bench.considered).toHaveLength(16);
  expect(bench.considered).toEqual(expect.arrayContaining(["w13", "w27", "w28", "w29"]));
  expect(bench.considered).toEqual(bench.considered.toSorted());
});

test("staged replicas: a worker of the same rack takes a lost one's stage", async () => {
  const bench = new StageBench("r1-a", "r1-b", "r1-c");
  await bench.places();
  bench.nowMs += AFTER_ADOPTION_MS;
  bench.load(await bench.places());
  for (const name of ["r0-a", "r1-d"]) bench.add(name);
  bench.workers.delete("r1-a");
  await bench.places();
  bench.nowMs += AFTER_ADOPTION_MS;
  expect(stagePlacesOf(await bench.places())).toContain("m#r1-c/0 r1-d");
});

test("staged replicas: workers with another library get no stage of a replica", async () => {
  const bench = new StageBench("a", "b", "c", "d");
  bench.add("a", undefined, 500, "2");
  await bench.places();
  bench.nowMs += AFTER_ADOPTION_MS;
  const before = await bench.places();
  expect(stagePlacesOf(before)).toEqual(["m d", "m#d/0 b", "m#d/1 c"]);
  bench.load(before);
  // It comes back with another one.
  bench.add("c", undefined, 500, "2");
  expect(stagePlacesOf(await bench.places())).toEqual(stagePlacesOf(before));
  bench.add("e");
  expect(stagePlacesOf(await bench.places())).toEqual(["m d", "m#d/0 b", "m#d/1 e"]);
});

test("staged replicas: of two workers with unlike libraries one is replaced", async () => {
  const bench = new StageBench("b", "c");
  await bench.places();
  bench.nowMs += AFTER_ADOPTION_MS;
  bench.load(await bench.places());
  bench.add("b", undefined, 500, "2");
  bench.add("d");
  expect(stagePlacesOf(await bench.places())).toEqual(["m c", "m#c/0 d"]);
});

test("staged replicas: a new leader takes up what workers have, without a plan", async () => {
  const bench = new StageBench("a", "b", "c", "d");
  await bench.places();
  bench.nowMs += AFTER_ADOPTION_MS;
  const places = await bench.places();
  bench.load(places);
  const next = bench.leader();
  expect(await bench.places(next)).toEqual(places);
  bench.nowMs += AFTER_ADOPTION_MS;
  expect(await bench.places(next)).toEqual(places);
  expect(bench.plans).toBe(1);
});

test("staged replicas: a worker that does not return is replaced; others keep theirs", async () => {
  const bench = new StageBench("a", "b", "c", "d");
  await bench.places();
  bench.nowMs += AFTER_ADOPTION_MS;
  const before = await bench.places();
  bench.load(before);
  bench.workers.delete("b");
  expect(stagePlacesOf(await bench.places())).toEqual(stagePlacesOf(before));
  bench.nowMs += AFTER_ADOPTION_MS;
  const after = await bench.places();
  expect(stagePlacesOf(after)).toEqual(["m c", "m#c/0 a", "m#c/1 d"]);
  expect(after.get("m#c/0")?.get("a")).toBe(before.get("m#c/0")?.get("a"));
  expect(bench.plans).toBe(1);
});

test("staged replicas: without a spare a lost worker's stage waits for it, for a time", async () => {
  const bench = new StageBench("a", "b", "c");
  await bench.places();
  bench.nowMs += AFTER_ADOPTION_MS;
  const before = await bench.places();
  bench.load(before);
  bench.workers.delete("b");
  await bench.places();
  bench.nowMs += AFTER_ADOPTION_MS;
  expect(await bench.places()).toEqual(before);
  bench.add("b");
  bench.load(before);
  expect(await bench.places()).toEqual(before);
  bench.workers.delete("b");
  await bench.places();
  bench.nowMs += 3 * AFTER_ADOPTION_MS;
  expect(stagePlacesOf(await bench.places())).not.toEqual(stagePlacesOf(before));
});

test("staged replicas: one that drains serves until another worker has the memory", async () => {
  const bench = new StageBench("a", "b", "c");
  await bench.places();
  bench.nowMs += AFTER_ADOPTION_MS;
  const before = await bench.places();
  bench.add("a", "drained");
  expect(await bench.places()).toEqual(before);
  bench.add("a", "draining");
  bench.add("d", undefined, 300);
  bench.nowMs += AFTER_ADOPTION_MS;
  expect(await bench.places()).toEqual(before);
  bench.add("d");
  expect(stagePlacesOf(await bench.places())).toEqual(["m c", "m#c/0 d", "m#c/1 b"]);
});

test("staged replicas: one that drains serves until the other worker is ready", async () => {
  const bench = new StageBench("a", "b", "c", "d");
  await bench.places();
  bench.nowMs += AFTER_ADOPTION_MS;
  const before = await bench.places();
  bench.load(before);
  bench.add("a", "draining");
  const meanwhile = await bench.places();
  expect(stagePlacesOf(meanwhile)).toEqual(["m c", "m#c/0 a", "m#c/0 d", "m#c/1 b"]);
  expect(meanwhile.get("m")).toEqual(before.get("m"));
  bench.load(meanwhile);
  const after = await bench.places();
  expect(stagePlacesOf(after)).toEqual(["m c", "m#c/0 d", "m#c/1 b"]);
  const last = after.get("m")?.get("c") as LlamaDeployment;
  expect(last.stage?.peers.map(({ address }) => address)).toEqual(["d:1", "b:1"]);
});

/** Workers with this much more memory than their stage needs; the last one is drained. */
async function drainedBench(memoryBytes: number): Promise<StageBench> {
  const bench = new StageBench();
  for (const name of ["a", "b", "c", "d"]) bench.add(name, undefined, memoryBytes);
  await bench.places();
  bench.nowMs += AFTER_ADOPTION_MS;
  bench.load(await bench.places());
  bench.add("c", "drained", memoryBytes);
  return bench;
}

test("staged replicas: the last worker serves on until another has its stage", async () => {
  const bench = await drainedBench(800);
  const both = await bench.places();
  const old = ["m#c/0 a", "m#c/1 b"];
  const next = ["m#d/0 a", "m#d/1 b"];
  expect(stagePlacesOf(both)).toEqual(["m c", "m d", ...old, ...next]);
  expect(bench.actions).toEqual(["load d"]);
  // A new leader finds both.
  bench.load(both);
  const leader = bench.leader();
  expect(stagePlacesOf(await bench.places(leader))).toEqual(["m d", ...old, ...next]);
  expect(stagePlacesOf(await bench.places())).toEqual(["m d", ...old, ...next]);
  // The controller waits with it until its calls have ended.
  expect(bench.actions).toEqual(["unload c"]);
  bench.unload("c");
  expect(stagePlacesOf(await bench.places())).toEqual(["m d", ...next]);
  expect(bench.plans).toBe(1);
});

test("staged replicas: without memory for two stages the last one's calls end first", async () => {
  const bench = await drainedBench(799);
  expect(stagePlacesOf(await bench.places())).toEqual(["m c", "m#c/0 a", "m#c/1 b"]);
  bench.nowMs += AFTER_ADOPTION_MS;
  expect(stagePlacesOf(await bench.places())).toEqual(["m d", "m#c/0 a", "m#c/1 b"]);
  expect(bench.actions).toEqual(["unload c", "load d"]);
  bench.unload("c");
  expect(stagePlacesOf(await bench.places())).toEqual(["m d", "m#d/0 a", "m#d/1 b"]);
  expect(bench.plans).toBe(1);
});

test("staged replicas: the drained last one returns where the next is lost", async () => {
  const bench = await drainedBench(800);
  expect(stagePlacesOf(await bench.places())).toContain("m d");
  bench.workers.delete("d");
  await bench.places();
  bench.nowMs += AFTER_ADOPTION_MS;
  expect(stagePlacesOf(await bench.places())).toEqual(["m c", "m#c/0 a", "m#c/1 b"]);
});

test("staged replicas: a stage that is gone may return until all is planned again", async () => {
  const bench = new StageBench("a", "b");
  await bench.places();
  bench.nowMs += AFTER_ADOPTION_MS;
  const before = await bench.places();
  bench.load(before);
  bench.workers.delete("a");
  await bench.places();
  bench.nowMs += 3 * AFTER_ADOPTION_MS;
  expect(stagePlacesOf(await bench.places())).toEqual(stagePlacesOf(before));
  expect(bench.staged.notes().get("m")?.misfit).toMatch(/needs two workers; b could have one/);
  bench.add("a");
  expect(await bench.places()).toEqual(before);
  expect(bench.staged.notes().get("m")?.misfit).toBeUndefined();
  bench.workers.delete("a");
  await bench.places();
  bench.add("e");
  bench.add("f");
  bench.nowMs += 3 * AFTER_ADOPTION_MS;
  await bench.places();
  bench.nowMs += 3 * AFTER_ADOPTION_MS;
  expect(stagePlacesOf(await bench.places())).not.toContain("m#b/0 a");
});

test("staged replicas: without the last worker, or another file, none has its stages", async () => {
  const bench = new StageBench("a", "b", "c", "d");
  await bench.places();
  bench.nowMs += AFTER_ADOPTION_MS;
  bench.load(await bench.places());
  bench.workers.delete("c");
  await bench.places();
  bench.nowMs += AFTER_ADOPTION_MS;
  expect(stagePlacesOf(await bench.places())).toEqual(["m d", "m#d/0 a", "m#d/1 b"]);
  bench.spec = {
    ...STAGED_SPEC,
    weights: { ...STAGED_SPEC.weights, sources: ["file:///other.gguf"] },
  };
  const places = await bench.places();
  expect(bench.plans).toBe(2);
  expect(places.get("m")?.get("d")?.weights).toEqual(bench.spec.weights);
});

test("staged replicas: a stage that keeps failing goes to a worker that has none", async () => {
  const bench = new StageBench("a", "b", "c", "d");
  await bench.places();
  bench.nowMs += AFTER_ADOPTION_MS;
  const before = await bench.places();
  bench.load(before);
  bench.fail("m#c/0@a");
  expect(stagePlacesOf(await bench.places())).toEqual(stagePlacesOf(before));
  bench.nowMs += AFTER_ADOPTION_MS;
  expect(stagePlacesOf(await bench.places())).toEqual(["m c", "m#c/0 d", "m#c/1 b"]);
  // Without another worker it stays, with its reason.
  const full = new StageBench("a", "b", "c");
  await full.places();
  full.nowMs += AFTER_ADOPTION_MS;
  full.load(await full.places());
  full.fail("m#c/0@a");
  full.fail("m@c");
  await full.places();
  full.nowMs += AFTER_ADOPTION_MS;
  expect(stagePlacesOf(await full.places())).toEqual(["m c", "m#c/0 a", "m#c/1 b"]);
});

test("staged replicas: another worker plans where one cannot", async () => {
  const bench = new StageBench("a", "b", "c");
  bench.planFault = (worker) =>
    worker === "a" ? new AppError("unavailable", "its disk is full") : undefined;
  await bench.places();
  bench.nowMs += AFTER_ADOPTION_MS;
  await bench.places();
  bench.nowMs += AFTER_ADOPTION_MS;
  expect(stagePlacesOf(await bench.places())).toEqual(["m c", "m#c/0 a", "m#c/1 b"]);
});

// holds: shard-parted

import { expect, test } from "vitest";
import { AFTER_ADOPTION_MS, StageBench, stagePlacesOf } from "./testing/stage-bench.ts";

/** A bench where the first three workers have the stages, the third one the last. */
async function placedBench(...names: string[]): Promise<StageBench> {
  const bench = new StageBench(...names);
  await bench.places();
  bench.nowMs += AFTER_ADOPTION_MS;
  bench.load(await bench.places());
  return bench;
}

/** What goes where once the worker reports that it does not reach these others. */
async function parted(bench: StageBench, last: string, ...others: string[]) {
  bench.part(last, others);
  const places = await bench.places();
  bench.load(places);
  return stagePlacesOf(places);
}

test("parted stages: another worker takes one that the last one does not reach", async () => {
  const bench = await placedBench("a", "b", "c", "d");
  const before = await bench.places();
  bench.part("c", ["a"], 2_999);
  expect(await bench.places()).toEqual(before);
  // One that loads may just have come back.
  bench.fail("m#c/0@a");
  bench.part("c", ["a"]);
  expect(await bench.places()).toEqual(before);
  bench.load(before);
  expect(await parted(bench, "c", "a")).toEqual(["m c", "m#c/0 d", "m#c/1 b"]);
});

test("parted stages: without another worker they wait for each other", async () => {
  const bench = await placedBench("a", "b", "c");
  expect(await parted(bench, "c", "a")).toEqual(["m c", "m#c/0 a", "m#c/1 b"]);
  bench.nowMs += 10 * AFTER_ADOPTION_MS;
  expect(await parted(bench, "c", "a")).toEqual(["m c", "m#c/0 a", "m#c/1 b"]);
});

test("parted stages: a last one that reaches no other leaves itself", async () => {
  const bench = await placedBench("a", "b", "c", "d");
  expect(await parted(bench, "c", "a", "b")).toEqual(["m d", "m#d/0 a", "m#d/1 b"]);
});

test("parted stages: a last one that leaves keeps its calls until the next is ready", async () => {
  const bench = new StageBench();
  for (const name of ["a", "b", "c", "d"]) bench.add(name, undefined, 800);
  await bench.places();
  bench.nowMs += AFTER_ADOPTION_MS;
  bench.load(await bench.places());
  bench.withCalls.add("c");
  bench.part("c", ["a", "b"]);
  const old = ["m#c/0 a", "m#c/1 b"];
  const next = ["m#d/0 a", "m#d/1 b"];
  const both = await bench.places();
  expect(stagePlacesOf(both)).toEqual(["m c", "m d", ...old, ...next]);
  bench.load(both);
  expect(stagePlacesOf(await bench.places())).toEqual(["m d", ...old, ...next]);
});

test("parted stages: two that did not reach each other get no stages together", async () => {
  const bench = await placedBench("a", "b", "c", "d", "e");
  expect(await parted(bench, "c", "a")).toEqual(["m c", "m#c/0 d", "m#c/1 b"]);
  // Cut off from two of them, the last one is at fault.
  expect(await parted(bench, "c", "d")).toEqual(["m a", "m#a/0 d", "m#a/1 b"]);
  expect(await parted(bench, "a", "d")).toEqual(["m a", "m#a/0 e", "m#a/1 b"]);
  expect(await parted(bench, "a", "e")).toEqual(["m c", "m#c/0 e", "m#c/1 b"]);
  expect(await parted(bench, "c", "e")).toEqual(["m d", "m#d/0 e", "m#d/1 b"]);
  // None is left that reaches the others, until what is known is old.
  expect(await parted(bench, "d", "e")).toEqual(["m d", "m#d/0 e", "m#d/1 b"]);
  bench.nowMs += 400_000;
  expect(await parted(bench, "d", "e")).toEqual(["m d", "m#d/0 a", "m#d/1 b"]);
});

test("parted stages: a new plan is made of workers that reach each other", async () => {
  const bench = await placedBench("a", "b", "c");
  await parted(bench, "c", "a");
  bench.add("e");
  bench.spec = { ...bench.spec, options: { threads: 2 } };
  await bench.places();
  bench.nowMs += AFTER_ADOPTION_MS;
  expect(stagePlacesOf(await bench.places())).toEqual(["m e", "m#e/0 a", "m#e/1 b"]);
});

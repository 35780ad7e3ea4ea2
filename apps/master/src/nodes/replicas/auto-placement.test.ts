// holds: shard-mixed

import { AppError } from "@heddle/base/errors";
import { expect, test } from "vitest";
import {
  AFTER_ADOPTION_MS,
  STAGED_SPEC,
  StageBench,
  stagePlacesOf,
} from "./testing/stage-bench.ts";

test("staged replicas: auto waits for the memory of workers that just attached", async () => {
  const bench = new StageBench();
  for (const name of ["a", "b", "c"]) bench.add(name, undefined, null);
  bench.spec = { ...STAGED_SPEC, placement: undefined };
  expect(await bench.places()).toEqual(new Map([["m", new Map()]]));
  bench.nowMs += AFTER_ADOPTION_MS;
  expect(await bench.places()).toEqual(new Map());
  for (const name of ["a", "b", "c"]) bench.add(name);
  await bench.places();
  bench.nowMs += AFTER_ADOPTION_MS;
  expect(stagePlacesOf(await bench.places())).toHaveLength(3);
});

test("staged replicas: auto divides what no worker holds, and says what is missing", async () => {
  const bench = new StageBench("a", "b", "c");
  bench.spec = { ...STAGED_SPEC, placement: undefined };
  await bench.places();
  bench.nowMs += AFTER_ADOPTION_MS;
  expect(stagePlacesOf(await bench.places())).toHaveLength(3);
  const roomy = new StageBench("a", "b");
  roomy.spec = bench.spec;
  roomy.add("c", undefined, 2_000);
  roomy.nowMs = AFTER_ADOPTION_MS;
  expect(stagePlacesOf(await roomy.places())).toEqual([]);
  expect(roomy.actions).toEqual(["load c"]);
  const alone = new StageBench("a");
  await alone.places();
  alone.nowMs += AFTER_ADOPTION_MS;
  await alone.places();
  expect(alone.staged.notes().get("m")?.misfit).toMatch(/needs two workers; a could have one/);
});

test("staged replicas: auto counts the cache and the process beside the weights", async () => {
  const bench = new StageBench("a", "b", "c");
  bench.spec = { ...STAGED_SPEC, placement: undefined };
  bench.add("large", undefined, 2_000);
  bench.sizeOf = () => 2_001;
  await bench.places();
  bench.nowMs += AFTER_ADOPTION_MS;
  expect(stagePlacesOf(await bench.places())).toHaveLength(3);
  expect(bench.staged.notes().get("m")).toEqual({ wholeBytes: 2_001 });
  const fresh = new StageBench("a", "b");
  fresh.spec = bench.spec;
  fresh.sizeOf = bench.sizeOf;
  fresh.nowMs = AFTER_ADOPTION_MS;
  fresh.add("large", undefined, 2_001);
  expect(stagePlacesOf(await fresh.places())).toEqual([]);
  expect(fresh.actions).toEqual(["load large"]);
  expect(fresh.staged.notes().get("m")?.undivided).toMatch(/one worker can hold it: .* large has/);
  // No other worker could have a stage.
  const alone = new StageBench();
  alone.spec = bench.spec;
  alone.sizeOf = bench.sizeOf;
  alone.nowMs = AFTER_ADOPTION_MS;
  alone.add("large", undefined, 2_000);
  expect(await alone.places()).toEqual(new Map());
  expect(alone.actions).toEqual(["load large"]);
  expect(alone.asked).toEqual([]);
});

test("staged replicas: auto does not divide what cannot be, and says why", async () => {
  const bench = new StageBench("a", "b", "c");
  bench.spec = { ...STAGED_SPEC, placement: undefined };
  bench.nowMs = AFTER_ADOPTION_MS;
  bench.sizeOf = () => new AppError("unprocessable", "its architecture is mamba");
  expect(await bench.places()).toEqual(new Map());
  expect(bench.actions).toEqual(["load a"]);
  expect(bench.staged.notes().get("m")).toEqual({ undivided: "its architecture is mamba" });
  expect(bench.asked).toEqual(["a", "b", "c"]);
});

test("staged replicas: a worker without the file is not the only one that is asked", async () => {
  const bench = new StageBench("a", "b");
  bench.spec = { ...STAGED_SPEC, placement: undefined };
  bench.add("large", undefined, 2_000);
  bench.nowMs = AFTER_ADOPTION_MS;
  const absent = new AppError("model_failed", "no such file");
  bench.sizeOf = (worker) => (worker === "a" ? absent : 3_000);
  await bench.places();
  expect(bench.asked).toEqual(["a", "b", "large"]);
  bench.nowMs += AFTER_ADOPTION_MS;
  expect(stagePlacesOf(await bench.places())).toHaveLength(3);
  const lost = new StageBench("a", "b");
  lost.spec = bench.spec;
  lost.add("large", undefined, 2_000);
  lost.nowMs = AFTER_ADOPTION_MS;
  lost.sizeOf = () => absent;
  // The weights alone count.
  expect(stagePlacesOf(await lost.places())).toEqual([]);
  expect(lost.actions).toEqual(["load large"]);
});

test("staged replicas: a file that comes whole only is read where it might fit", async () => {
  const bench = new StageBench("a", "b", "c");
  bench.spec = { ...STAGED_SPEC, placement: undefined };
  bench.add("large", undefined, 1_500);
  bench.nowMs = AFTER_ADOPTION_MS;
  let size: number | AppError = new AppError("model_loading", "m is read");
  bench.sizeOf = (_, whole) => (whole ? size : new AppError("model_failed", "no ranges"));
  expect(await bench.places()).toEqual(new Map([["m", new Map()]]));
  expect(bench.asked).toEqual(["a", "b", "c", "large whole"]);
  expect(bench.staged.notes().get("m")).toEqual({ misfit: "m is read" });
  size = 1_501;
  bench.nowMs += AFTER_ADOPTION_MS;
  expect(stagePlacesOf(await bench.places())).toHaveLength(3);
  // Where there is room for twice the weights nothing is read.
  const roomy = new StageBench("a", "b");
  roomy.spec = bench.spec;
  roomy.add("large", undefined, 2_000);
  roomy.nowMs = AFTER_ADOPTION_MS;
  roomy.sizeOf = bench.sizeOf;
  await roomy.places();
  expect(roomy.actions).toEqual(["load large"]);
  expect(roomy.asked).toEqual(["a", "b", "large"]);
});

test("staged replicas: a worker that is not reached holds up no placement", async () => {
  const bench = new StageBench("a", "b", "c");
  bench.spec = { ...STAGED_SPEC, placement: undefined };
  bench.add("large", undefined, 2_000);
  bench.nowMs = AFTER_ADOPTION_MS;
  bench.sizeOf = (worker) => (worker === "c" ? 2_001 : new Promise(() => {}));
  await bench.places();
  bench.nowMs += AFTER_ADOPTION_MS;
  expect(stagePlacesOf(await bench.places())).toHaveLength(3);
});

/** Workers that divide the model, and one that can hold it. */
async function mixedBench(): Promise<StageBench> {
  const bench = new StageBench("a", "b", "c");
  bench.add("large", undefined, 2_000);
  bench.spec = { ...STAGED_SPEC, placement: undefined };
  bench.replicas = 2;
  bench.nowMs = AFTER_ADOPTION_MS;
  await bench.places();
  bench.nowMs += AFTER_ADOPTION_MS;
  return bench;
}

test("staged replicas: auto divides those replicas that no single worker can hold", async () => {
  const bench = await mixedBench();
  const places = await bench.places();
  expect(stagePlacesOf(places)).toEqual(["m c", "m#c/0 a", "m#c/1 b"]);
  expect(bench.actions).toEqual(["load c", "load large"]);
  bench.load(places);
  bench.loadWhole("large");
  expect(stagePlacesOf(await bench.places())).toEqual(stagePlacesOf(places));
  expect(bench.actions).toEqual([]);
  // A new leader finds both, and changes nothing.
  const next = bench.leader();
  expect(stagePlacesOf(await bench.places(next))).toEqual(stagePlacesOf(places));
  expect(bench.actions).toEqual([]);
  expect(bench.plans).toBe(1);
});

test("staged replicas: of fewer, ready whole ones stay, else the divided ones", async () => {
  const bench = await mixedBench();
  bench.load(await bench.places());
  bench.loadWhole("large");
  bench.replicas = 1;
  expect(stagePlacesOf(await bench.places())).toEqual([]);
  expect(bench.actions).toEqual(["unload c"]);
  bench.unload("c");
  expect(stagePlacesOf(await bench.places())).toEqual([]);
  expect(bench.actions).toEqual([]);
  const other = await mixedBench();
  other.load(await other.places());
  other.replicas = 1;
  expect(stagePlacesOf(await other.places())).toContain("m c");
  expect(other.actions).toEqual([]);
});

test("staged replicas: a worker that can hold the model gets no stage of it", async () => {
  const bench = await mixedBench();
  const before = await bench.places();
  bench.load(before);
  bench.loadWhole("large");
  bench.add("a", "drained");
  bench.nowMs += AFTER_ADOPTION_MS;
  expect(stagePlacesOf(await bench.places())).toEqual(stagePlacesOf(before));
  bench.add("d");
  bench.load(await bench.places());
  expect(stagePlacesOf(await bench.places())).toEqual(["m c", "m#c/0 d", "m#c/1 b"]);
  expect(bench.actions).toEqual([]);
});

test("staged replicas: what was missing is said no more when a large worker returns", async () => {
  const bench = await mixedBench();
  bench.load(await bench.places());
  bench.loadWhole("large");
  bench.workers.delete("large");
  bench.unload("large");
  await bench.places();
  await bench.places();
  expect(bench.staged.notes().get("m")?.misfit).toMatch(/needs two workers; none could/);
  bench.add("large", undefined, 2_000);
  await bench.places();
  expect(bench.staged.notes().get("m")?.misfit).toBeUndefined();
});

test("staged replicas: where the large worker leaves, others divide its replica too", async () => {
  const bench = await mixedBench();
  bench.load(await bench.places());
  bench.loadWhole("large");
  for (const name of ["d", "e", "f"]) bench.add(name);
  bench.add("large", "drained", 2_000);
  await bench.places();
  expect(bench.actions).toEqual(["unload large"]);
  bench.unload("large");
  await bench.places();
  expect(stagePlacesOf(await bench.places())).toEqual([
    "m c",
    "m f",
    "m#c/0 a",
    "m#c/1 b",
    "m#f/0 d",
    "m#f/1 e",
  ]);
  expect(bench.actions).toEqual(["load f"]);
});

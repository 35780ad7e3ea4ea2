// holds: shard-workers, shard-mixed, shard-drain

import { AppError } from "@heddle/base/errors";
import type { LlamaDeployment, ReplicaStatus } from "@heddle/contracts/engine";
import type { StagePlan__Output } from "@heddle/contracts/generated/heddle/v1/StagePlan";
import type { DeploymentRecord } from "@heddle/control/state";
import { emptyLoad } from "@heddle/rpc/node-codec";
import { expect, test } from "vitest";
import type { AttachedNode } from "../attached-node.ts";
import { type PlacementWorker, planPlacement } from "./placement-plan.ts";
import type { StageCandidate } from "./staged-replica.ts";
import { StagedReplicas, type StagePlaces } from "./staged-replicas.ts";

const SPEC: LlamaDeployment = {
  key: "m",
  engine: "llama",
  weights: { key: "m", file: "m.gguf", sources: ["file:///m.gguf"], sizeBytes: 1_000 },
  options: {},
  placement: { mode: "sharded" },
};
const SIZES = { contextTokens: 512, kvTokens: 1_024, maxSequences: 4, index: "f".repeat(64) };
/** Longer than a new leader listens for what workers have. */
const LATER_MS = 10_000;

/** A cluster of workers whose plans give each of the first three some blocks. */
class Bench {
  nowMs = 0;
  plans = 0;
  /** Why a worker cannot plan. */
  planFault: (worker: string) => AppError | undefined = () => undefined;
  /** What each worker says of the whole model. */
  sizeOf: (worker: string) => number | AppError = () => 1_000;
  /** Workers that were asked for it. */
  readonly asked: string[] = [];
  readonly workers = new Map<string, StageCandidate>();
  /** What they report: all that they had to load. */
  readonly #reports = new Map<string, ReplicaStatus>();
  readonly staged = this.leader();
  #actions: ReturnType<typeof planPlacement> = [];
  spec = SPEC;
  replicas = 1;

  constructor(...names: string[]) {
    for (const name of names) this.add(name);
  }

  /** A master that begins to lead. */
  leader(): StagedReplicas {
    return new StagedReplicas({
      clock: { monotonicMs: () => this.nowMs, wallMs: () => this.nowMs },
      random: () => 1,
      log: { info() {}, warn() {}, error() {} },
      onChange: () => {},
    });
  }

  add(name: string, leaving?: StageCandidate["leaving"], memoryBytes: number | null = 500): void {
    const planStages = async (request: { workers?: { node?: string }[] | null }) => {
      const fault = this.planFault(name);
      if (fault) throw fault;
      this.plans++;
      const nodes = (request.workers ?? []).slice(0, 3).map(({ node = "" }) => node);
      const stages = nodes.map((node, i) => ({ node, from: i, to: i + 1, memoryBytes: 400 }));
      return { stages, ...SIZES } satisfies StagePlan__Output;
    };
    const sizeModel = async () => {
      this.asked.push(name);
      const size = this.sizeOf(name);
      if (size instanceof AppError) throw size;
      return { memoryBytes: size };
    };
    const node = {
      id: name,
      link: { planStages, sizeModel },
      register: { name, address: `${name}:1`, engineFeatures: ["stages"], fabric: "", rack: "" },
      replica: (key: string) => this.#reports.get(`${key}@${name}`),
    } as unknown as AttachedNode;
    this.workers.set(name, { node, leaving, memoryBytes: () => memoryBytes ?? undefined });
  }

  async places(staged = this.staged, isLeader = true): Promise<StagePlaces> {
    const deployments = new Map<string, DeploymentRecord>([
      ["m", { spec: this.spec, replicas: this.replicas }],
    ]);
    const all = () => {
      const placement = staged.places(deployments, [...this.workers.values()], isLeader);
      this.#actions = planPlacement(deployments, this.#views(), placement);
      return placement.places;
    };
    // The model's size, and then a plan, come later.
    for (let answers = 0; answers < 2; answers++) {
      all();
      await new Promise((resolve) => setImmediate(resolve));
    }
    return all();
  }

  /** What the workers are to do, without stages. */
  get actions(): readonly string[] {
    return this.#actions
      .filter(({ deployment }) => deployment === "m")
      .map(({ type, worker }) => `${type} ${worker}`);
  }

  #views(): PlacementWorker[] {
    return [...this.workers.values()].map(({ node: { id }, leaving }) => {
      const replicas = [...this.#reports]
        .filter(([at]) => at.endsWith(`@${id}`))
        .map(([, report]) => report);
      return { id, leaving, memoryBytes: 0, replicas };
    });
  }

  /** The worker has the whole model. */
  loadWhole(node: string): void {
    const pulled = { pulledBytes: 0, totalBytes: 0 };
    const status = { deployment: "m", phase: "ready", message: "", load: emptyLoad } as const;
    this.#reports.set(`m@${node}`, { ...status, ...pulled });
  }

  /** The worker reports that it cannot load a stage. */
  fail(at: string): void {
    this.#reports.set(at, { ...this.#reports.get(at)!, phase: "failed" });
  }

  unload(node: string): void {
    this.#reports.delete(`m@${node}`);
  }

  /** The workers report what they have to load. */
  load(places: StagePlaces): void {
    for (const [deployment, own] of places) {
      for (const [node, spec] of own) {
        const stage = spec.engine === "llama" ? spec.stage : undefined;
        const status = { deployment, phase: "ready", message: "", load: emptyLoad } as const;
        const pulled = { pulledBytes: 0, totalBytes: 0 };
        this.#reports.set(`${deployment}@${node}`, { ...status, ...pulled, stage });
      }
    }
  }
}

const nodesOf = (places: StagePlaces) =>
  [...places].flatMap(([key, own]) => [...own.keys()].map((node) => `${key} ${node}`)).sort();

test("staged replicas: each stage gets its key, and the last one the others' places", async () => {
  const bench = new Bench("a", "b", "c", "d");
  bench.nowMs = LATER_MS;
  await bench.places();
  bench.nowMs += LATER_MS;
  const places = await bench.places();
  expect(nodesOf(places)).toEqual(["m c", "m#c/0 a", "m#c/1 b"]);
  const last = places.get("m")?.get("c") as LlamaDeployment;
  expect(last.stage).toMatchObject({ from: 2, to: 3, driver: "c", ...SIZES });
  expect(last.stage?.peers.map(({ address }) => address)).toEqual(["a:1", "b:1"]);
  expect((await bench.places()).get("m")?.get("c")).toBe(last);
  expect(bench.plans).toBe(1);
});

test("staged replicas: a new leader takes up what workers have, without a plan", async () => {
  const bench = new Bench("a", "b", "c", "d");
  await bench.places();
  bench.nowMs += LATER_MS;
  const places = await bench.places();
  bench.load(places);
  const next = bench.leader();
  expect(await bench.places(next)).toEqual(places);
  bench.nowMs += LATER_MS;
  expect(await bench.places(next)).toEqual(places);
  expect(bench.plans).toBe(1);
});

test("staged replicas: a worker that stays away is replaced; others keep theirs", async () => {
  const bench = new Bench("a", "b", "c", "d");
  await bench.places();
  bench.nowMs += LATER_MS;
  const before = await bench.places();
  bench.load(before);
  bench.workers.delete("b");
  expect(nodesOf(await bench.places())).toEqual(nodesOf(before));
  bench.nowMs += LATER_MS;
  const after = await bench.places();
  expect(nodesOf(after)).toEqual(["m c", "m#c/0 a", "m#c/1 d"]);
  expect(after.get("m#c/0")?.get("a")).toBe(before.get("m#c/0")?.get("a"));
  expect(bench.plans).toBe(1);
});

test("staged replicas: without a spare a lost worker's stage waits for it, for a time", async () => {
  const bench = new Bench("a", "b", "c");
  await bench.places();
  bench.nowMs += LATER_MS;
  const before = await bench.places();
  bench.load(before);
  bench.workers.delete("b");
  await bench.places();
  bench.nowMs += LATER_MS;
  expect(await bench.places()).toEqual(before);
  bench.add("b");
  bench.load(before);
  expect(await bench.places()).toEqual(before);
  bench.workers.delete("b");
  await bench.places();
  bench.nowMs += 3 * LATER_MS;
  expect(nodesOf(await bench.places())).not.toEqual(nodesOf(before));
});

test("staged replicas: auto waits for the memory of workers that just attached", async () => {
  const bench = new Bench();
  for (const name of ["a", "b", "c"]) bench.add(name, undefined, null);
  bench.spec = { ...SPEC, placement: undefined };
  expect(await bench.places()).toEqual(new Map([["m", new Map()]]));
  bench.nowMs += LATER_MS;
  expect(await bench.places()).toEqual(new Map());
  for (const name of ["a", "b", "c"]) bench.add(name);
  await bench.places();
  bench.nowMs += LATER_MS;
  expect(nodesOf(await bench.places())).toHaveLength(3);
});

test("staged replicas: one that drains serves until another worker has the memory", async () => {
  const bench = new Bench("a", "b", "c");
  await bench.places();
  bench.nowMs += LATER_MS;
  const before = await bench.places();
  bench.add("a", "drained");
  expect(await bench.places()).toEqual(before);
  bench.add("a", "draining");
  bench.add("d", undefined, 300);
  bench.nowMs += LATER_MS;
  expect(await bench.places()).toEqual(before);
  bench.add("d");
  expect(nodesOf(await bench.places())).toEqual(["m c", "m#c/0 d", "m#c/1 b"]);
});

test("staged replicas: one that drains serves until the other worker is ready", async () => {
  const bench = new Bench("a", "b", "c", "d");
  await bench.places();
  bench.nowMs += LATER_MS;
  const before = await bench.places();
  bench.load(before);
  bench.add("a", "draining");
  const meanwhile = await bench.places();
  expect(nodesOf(meanwhile)).toEqual(["m c", "m#c/0 a", "m#c/0 d", "m#c/1 b"]);
  expect(meanwhile.get("m")).toEqual(before.get("m"));
  bench.load(meanwhile);
  const after = await bench.places();
  expect(nodesOf(after)).toEqual(["m c", "m#c/0 d", "m#c/1 b"]);
  const last = after.get("m")?.get("c") as LlamaDeployment;
  expect(last.stage?.peers.map(({ address }) => address)).toEqual(["d:1", "b:1"]);
});

/** Workers with this much more memory than their stage needs; the last one is drained. */
async function drainedBench(memoryBytes: number): Promise<Bench> {
  const bench = new Bench();
  for (const name of ["a", "b", "c", "d"]) bench.add(name, undefined, memoryBytes);
  await bench.places();
  bench.nowMs += LATER_MS;
  bench.load(await bench.places());
  bench.add("c", "drained", memoryBytes);
  return bench;
}

test("staged replicas: the last worker serves on until another has its stage", async () => {
  const bench = await drainedBench(800);
  const both = await bench.places();
  const old = ["m#c/0 a", "m#c/1 b"];
  const next = ["m#d/0 a", "m#d/1 b"];
  expect(nodesOf(both)).toEqual(["m c", "m d", ...old, ...next]);
  expect(bench.actions).toEqual(["load d"]);
  // A new leader finds both.
  bench.load(both);
  const leader = bench.leader();
  expect(nodesOf(await bench.places(leader))).toEqual(["m d", ...old, ...next]);
  expect(nodesOf(await bench.places())).toEqual(["m d", ...old, ...next]);
  // The controller waits with it until its calls have ended.
  expect(bench.actions).toEqual(["unload c"]);
  bench.unload("c");
  expect(nodesOf(await bench.places())).toEqual(["m d", ...next]);
  expect(bench.plans).toBe(1);
});

test("staged replicas: without memory for two stages the last one's calls end first", async () => {
  const bench = await drainedBench(799);
  expect(nodesOf(await bench.places())).toEqual(["m c", "m#c/0 a", "m#c/1 b"]);
  bench.nowMs += LATER_MS;
  expect(nodesOf(await bench.places())).toEqual(["m d", "m#c/0 a", "m#c/1 b"]);
  expect(bench.actions).toEqual(["unload c", "load d"]);
  bench.unload("c");
  expect(nodesOf(await bench.places())).toEqual(["m d", "m#d/0 a", "m#d/1 b"]);
  expect(bench.plans).toBe(1);
});

test("staged replicas: the drained last one returns where the next is lost", async () => {
  const bench = await drainedBench(800);
  expect(nodesOf(await bench.places())).toContain("m d");
  bench.workers.delete("d");
  await bench.places();
  bench.nowMs += LATER_MS;
  expect(nodesOf(await bench.places())).toEqual(["m c", "m#c/0 a", "m#c/1 b"]);
});

test("staged replicas: a stage that is gone may return until all is planned again", async () => {
  const bench = new Bench("a", "b");
  await bench.places();
  bench.nowMs += LATER_MS;
  const before = await bench.places();
  bench.load(before);
  bench.workers.delete("a");
  await bench.places();
  bench.nowMs += 3 * LATER_MS;
  expect(nodesOf(await bench.places())).toEqual(nodesOf(before));
  expect(bench.staged.notes().get("m")?.misfit).toMatch(/1 workers are there/);
  bench.add("a");
  expect(await bench.places()).toEqual(before);
  expect(bench.staged.notes().get("m")?.misfit).toBeUndefined();
  bench.workers.delete("a");
  await bench.places();
  bench.add("e");
  bench.add("f");
  bench.nowMs += 3 * LATER_MS;
  await bench.places();
  bench.nowMs += 3 * LATER_MS;
  expect(nodesOf(await bench.places())).not.toContain("m#b/0 a");
});

test("staged replicas: without the last worker, or another file, none has its stages", async () => {
  const bench = new Bench("a", "b", "c", "d");
  await bench.places();
  bench.nowMs += LATER_MS;
  bench.load(await bench.places());
  bench.workers.delete("c");
  await bench.places();
  bench.nowMs += LATER_MS;
  expect(nodesOf(await bench.places())).toEqual(["m d", "m#d/0 a", "m#d/1 b"]);
  bench.spec = { ...SPEC, weights: { ...SPEC.weights, sources: ["file:///other.gguf"] } };
  const places = await bench.places();
  expect(bench.plans).toBe(2);
  expect(places.get("m")?.get("d")?.weights).toEqual(bench.spec.weights);
});

test("staged replicas: auto divides what no worker holds, and says what is missing", async () => {
  const bench = new Bench("a", "b", "c");
  bench.spec = { ...SPEC, placement: undefined };
  await bench.places();
  bench.nowMs += LATER_MS;
  expect(nodesOf(await bench.places())).toHaveLength(3);
  const roomy = new Bench("a", "b");
  roomy.spec = bench.spec;
  roomy.add("c", undefined, 2_000);
  roomy.nowMs = LATER_MS;
  expect(nodesOf(await roomy.places())).toEqual([]);
  expect(roomy.actions).toEqual(["load c"]);
  const alone = new Bench("a");
  await alone.places();
  alone.nowMs += LATER_MS;
  await alone.places();
  expect(alone.staged.notes().get("m")?.misfit).toMatch(/1 workers are there .* it needs two/);
});

test("staged replicas: auto counts the cache and the process beside the weights", async () => {
  const bench = new Bench("a", "b", "c");
  bench.spec = { ...SPEC, placement: undefined };
  bench.add("large", undefined, 2_000);
  bench.sizeOf = () => 2_001;
  await bench.places();
  bench.nowMs += LATER_MS;
  expect(nodesOf(await bench.places())).toHaveLength(3);
  expect(bench.staged.notes().get("m")).toBeUndefined();
  const fresh = new Bench("a", "b");
  fresh.spec = bench.spec;
  fresh.sizeOf = bench.sizeOf;
  fresh.nowMs = LATER_MS;
  fresh.add("large", undefined, 2_001);
  expect(nodesOf(await fresh.places())).toEqual([]);
  expect(fresh.actions).toEqual(["load large"]);
  expect(fresh.staged.notes().get("m")?.undivided).toMatch(/one worker can hold it: .* large has/);
  // No other worker could have a stage.
  const alone = new Bench();
  alone.spec = bench.spec;
  alone.sizeOf = bench.sizeOf;
  alone.nowMs = LATER_MS;
  alone.add("large", undefined, 2_000);
  expect(await alone.places()).toEqual(new Map());
  expect(alone.actions).toEqual(["load large"]);
  expect(alone.asked).toEqual([]);
});

test("staged replicas: auto does not divide what cannot be, and says why", async () => {
  const bench = new Bench("a", "b", "c");
  bench.spec = { ...SPEC, placement: undefined };
  bench.nowMs = LATER_MS;
  bench.sizeOf = () => new AppError("unprocessable", "its architecture is mamba");
  expect(await bench.places()).toEqual(new Map());
  expect(bench.actions).toEqual(["load a"]);
  expect(bench.staged.notes().get("m")).toEqual({ undivided: "its architecture is mamba" });
  expect(bench.asked).toEqual(["a"]);
});

test("staged replicas: a worker without the file is not the only one that is asked", async () => {
  const bench = new Bench("a", "b");
  bench.spec = { ...SPEC, placement: undefined };
  bench.add("large", undefined, 2_000);
  bench.nowMs = LATER_MS;
  const absent = new AppError("model_failed", "no such file");
  bench.sizeOf = (worker) => (worker === "a" ? absent : 3_000);
  await bench.places();
  expect(bench.asked).toEqual(["a", "b"]);
  const lost = new Bench("a", "b");
  lost.spec = bench.spec;
  lost.add("large", undefined, 2_000);
  lost.nowMs = LATER_MS;
  lost.sizeOf = () => absent;
  // The weights alone count.
  expect(nodesOf(await lost.places())).toEqual([]);
  expect(lost.actions).toEqual(["load large"]);
});

/** Workers that divide the model, and one that can hold it. */
async function mixedBench(): Promise<Bench> {
  const bench = new Bench("a", "b", "c");
  bench.add("large", undefined, 2_000);
  bench.spec = { ...SPEC, placement: undefined };
  bench.replicas = 2;
  bench.nowMs = LATER_MS;
  await bench.places();
  bench.nowMs += LATER_MS;
  return bench;
}

test("staged replicas: auto divides those replicas that no single worker can hold", async () => {
  const bench = await mixedBench();
  const places = await bench.places();
  expect(nodesOf(places)).toEqual(["m c", "m#c/0 a", "m#c/1 b"]);
  expect(bench.actions).toEqual(["load c", "load large"]);
  bench.load(places);
  bench.loadWhole("large");
  expect(nodesOf(await bench.places())).toEqual(nodesOf(places));
  expect(bench.actions).toEqual([]);
  // A new leader finds both, and changes nothing.
  const next = bench.leader();
  expect(nodesOf(await bench.places(next))).toEqual(nodesOf(places));
  expect(bench.actions).toEqual([]);
  expect(bench.plans).toBe(1);
});

test("staged replicas: of fewer, ready whole ones stay, else the divided ones", async () => {
  const bench = await mixedBench();
  bench.load(await bench.places());
  bench.loadWhole("large");
  bench.replicas = 1;
  expect(nodesOf(await bench.places())).toEqual([]);
  expect(bench.actions).toEqual(["unload c"]);
  bench.unload("c");
  expect(nodesOf(await bench.places())).toEqual([]);
  expect(bench.actions).toEqual([]);
  const other = await mixedBench();
  other.load(await other.places());
  other.replicas = 1;
  expect(nodesOf(await other.places())).toContain("m c");
  expect(other.actions).toEqual([]);
});

test("staged replicas: a worker that can hold the model gets no stage of it", async () => {
  const bench = await mixedBench();
  const before = await bench.places();
  bench.load(before);
  bench.loadWhole("large");
  bench.add("a", "drained");
  bench.nowMs += LATER_MS;
  expect(nodesOf(await bench.places())).toEqual(nodesOf(before));
  bench.add("d");
  bench.load(await bench.places());
  expect(nodesOf(await bench.places())).toEqual(["m c", "m#c/0 d", "m#c/1 b"]);
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
  expect(bench.staged.notes().get("m")?.misfit).toMatch(/it needs two/);
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
  expect(nodesOf(await bench.places())).toEqual([
    "m c",
    "m f",
    "m#c/0 a",
    "m#c/1 b",
    "m#f/0 d",
    "m#f/1 e",
  ]);
  expect(bench.actions).toEqual(["load f"]);
});

test("staged replicas: a stage that keeps failing goes to a worker that has none", async () => {
  const bench = new Bench("a", "b", "c", "d");
  await bench.places();
  bench.nowMs += LATER_MS;
  const before = await bench.places();
  bench.load(before);
  bench.fail("m#c/0@a");
  expect(nodesOf(await bench.places())).toEqual(nodesOf(before));
  bench.nowMs += LATER_MS;
  expect(nodesOf(await bench.places())).toEqual(["m c", "m#c/0 d", "m#c/1 b"]);
  // Without another worker it stays, with its reason.
  const full = new Bench("a", "b", "c");
  await full.places();
  full.nowMs += LATER_MS;
  full.load(await full.places());
  full.fail("m#c/0@a");
  full.fail("m@c");
  await full.places();
  full.nowMs += LATER_MS;
  expect(nodesOf(await full.places())).toEqual(["m c", "m#c/0 a", "m#c/1 b"]);
});

test("staged replicas: another worker plans where one cannot", async () => {
  const bench = new Bench("a", "b", "c");
  bench.planFault = (worker) =>
    worker === "a" ? new AppError("unavailable", "its disk is full") : undefined;
  await bench.places();
  bench.nowMs += LATER_MS;
  await bench.places();
  bench.nowMs += LATER_MS;
  expect(nodesOf(await bench.places())).toEqual(["m c", "m#c/0 a", "m#c/1 b"]);
});

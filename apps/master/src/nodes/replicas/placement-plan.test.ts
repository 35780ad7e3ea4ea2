// holds: engine-memory-claim

import type { ReplicaPhase } from "@heddle/contracts/engine";
import type { DeploymentRecord } from "@heddle/control/state";
import fc from "fast-check";
import { expect, test } from "vitest";
import { type PlacementWorker, planPlacement } from "./placement-plan.ts";

const deployment = (key: string, replicas: DeploymentRecord["replicas"]) =>
  [
    key,
    {
      replicas,
      spec: {
        key,
        engine: "llama",
        options: {},
        weights: { key, file: "m.gguf", sources: [] },
      },
    },
  ] as const;
const worker = (id: string, replicas: Record<string, ReplicaPhase> = {}): PlacementWorker => ({
  id,
  memoryBytes: 1,
  replicas: Object.entries(replicas).map(([key, phase]) => ({ deployment: key, phase })),
});

test("every-worker: loads where it is missing and nowhere else", () => {
  const plan = planPlacement(new Map([deployment("m", "every-worker")]), [
    worker("a", { m: "ready" }),
    worker("b"),
    worker("c", { m: "loading" }),
  ]);
  expect(plan).toEqual([{ type: "load", worker: "b", deployment: "m" }]);
});

test("number of replicas: goes to the workers with the fewest deployments", () => {
  const plan = planPlacement(new Map([deployment("m", 2), deployment("x", "every-worker")]), [
    worker("a", { x: "ready", y: "unloading" }),
    worker("b", { x: "ready" }),
    worker("c", { x: "ready" }),
  ]);
  expect(plan).toEqual([
    { type: "load", worker: "b", deployment: "m" },
    { type: "load", worker: "c", deployment: "m" },
  ]);
});

test("room: a worker without room gets no replica, another with room gets it", () => {
  const full = { ...worker("a"), hasRoom: () => false };
  const load = (id: string) => ({ type: "load", worker: id, deployment: "m" });
  expect(planPlacement(new Map([deployment("m", 1)]), [full, worker("b", { x: "ready" })])).toEqual(
    [load("b"), { type: "unload", worker: "b", deployment: "x" }],
  );
  const everywhere = new Map([deployment("m", "every-worker")]);
  expect(planPlacement(everywhere, [full, worker("b")])).toEqual([load("b")]);
  const failed = { ...worker("a", { m: "failed" }), hasRoom: () => false };
  expect(planPlacement(new Map([deployment("m", 1)]), [failed])).toEqual([]);
  const serving = { ...worker("a", { m: "ready" }), hasRoom: () => false };
  expect(planPlacement(new Map([deployment("m", 1)]), [serving, worker("b")])).toEqual([]);
});

test("unload: unwanted and surplus replicas go, the most ready one stays", () => {
  const plan = planPlacement(new Map([deployment("m", 1)]), [
    worker("a", { m: "loading" }),
    worker("b", { m: "ready", old: "ready" }),
  ]);
  expect(plan).toEqual([
    { type: "unload", worker: "a", deployment: "m" },
    { type: "unload", worker: "b", deployment: "old" },
  ]);
});

test("failed replica: retried elsewhere, and kept for its reason until one is ready", () => {
  const wanted = new Map([deployment("m", 1)]);
  expect(planPlacement(wanted, [worker("a", { m: "failed" }), worker("b")])).toEqual([
    { type: "load", worker: "b", deployment: "m" },
  ]);
  const failed = worker("a", { m: "failed" });
  expect(planPlacement(wanted, [failed, worker("b", { m: "loading" })])).toEqual([]);
  expect(planPlacement(wanted, [failed, worker("b", { m: "ready" })])).toEqual([
    { type: "unload", worker: "a", deployment: "m" },
  ]);
  expect(planPlacement(new Map([deployment("m", 0)]), [failed])).toEqual([
    { type: "unload", worker: "a", deployment: "m" },
  ]);
});

test("failed everywhere: retried where it has failed the fewest times", () => {
  const failedTimes = (id: string, failures: number): PlacementWorker => ({
    ...worker(id),
    replicas: [{ deployment: "m", phase: "failed", failures }],
  });
  const wanted = new Map([deployment("m", 1)]);
  const triedOn = (...workers: PlacementWorker[]) => planPlacement(wanted, workers);
  const on = (worker: string) => [{ type: "load", worker, deployment: "m" }];
  expect(triedOn(failedTimes("a", 0))).toEqual(on("a"));
  expect(triedOn(failedTimes("a", 1), failedTimes("b", 1))).toEqual(on("a"));
  expect(triedOn(failedTimes("a", 2), failedTimes("b", 1))).toEqual(on("b"));
});

test("scheduled replicas: run exactly where the scheduler has placed them", () => {
  const wanted = new Map([deployment("m", 2)]);
  const workers = [worker("a", { m: "ready" }), worker("b"), worker("c", { m: "unloading" })];
  expect(planPlacement(wanted, workers, { places: new Map([["m", new Map()]]) })).toEqual([
    { type: "unload", worker: "a", deployment: "m" },
  ]);
  const places = new Map([["m", new Map([["b", {}]])]]);
  expect(planPlacement(wanted, workers, { places })).toEqual([
    { type: "unload", worker: "a", deployment: "m" },
    { type: "load", worker: "b", deployment: "m" },
  ]);
});

test("convergence: a plan carried out leaves no action, from any healthy state", () => {
  const phase = fc.constantFrom<ReplicaPhase>("ready", "loading", "pulling");
  const keys = ["m", "n", "o"];
  const state = fc.array(fc.dictionary(fc.constantFrom(...keys), phase), { maxLength: 5 });
  const wanted = fc.dictionary(
    fc.constantFrom(...keys),
    fc.oneof(fc.nat(4), fc.constant("every-worker" as const)),
  );
  fc.assert(
    fc.property(state, wanted, (states, asked) => {
      const deployments = new Map(Object.entries(asked).map(([k, n]) => deployment(k, n)));
      const before = states.map((replicas, index) => worker(`w${index}`, replicas));
      const plan = planPlacement(deployments, before);
      const after = states.map((replicas, index) => {
        const next: Record<string, ReplicaPhase> = { ...replicas };
        for (const action of plan.filter((each) => each.worker === `w${index}`)) {
          if (action.type === "load") next[action.deployment] = "ready";
          else delete next[action.deployment];
        }
        return worker(`w${index}`, next);
      });
      expect(planPlacement(deployments, after)).toEqual([]);
      for (const [key, replicas] of Object.entries(asked)) {
        const have = after.filter((w) => w.replicas.some((r) => r.deployment === key)).length;
        const want = replicas === "every-worker" ? after.length : Math.min(replicas, after.length);
        expect(have).toBe(want);
      }
    }),
  );
});

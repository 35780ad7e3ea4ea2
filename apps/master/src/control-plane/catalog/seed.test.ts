// holds: engine-catalog, sched-hand-placed

import { createLogger } from "@heddle/observability/logger";
import { beforeEach, describe, expect, it } from "vitest";
import { VolatileControl } from "../../../test/test-master.ts";
import { type CatalogSeed, fileSeed, profileSeed, seedModels, unseededModels } from "./seed.ts";

const logger = createLogger({ service: "test", level: "silent" });
const IDS = ["FamilyA-1-2B", "FamilyA-1-4B", "FamilyA-1-8B", "FamilyB-1-2B", "FamilyB-1-8B"];
const demo = profileSeed("demo");
const file = fileSeed("/models/my model.gguf");

let control: VolatileControl;
beforeEach(() => {
  control = new VolatileControl();
});

/** A master's start with this seed on the present state. */
async function start(seed: CatalogSeed): Promise<void> {
  await seedModels(control, seed, logger);
  expect(unseededModels(control.state, seed)).toEqual([]);
}

const remove = (id: string) => control.propose({ type: "model.remove", atMs: 5, id });
const backings = () => new Set([...control.state.models.values()].map(({ backing }) => backing));
const ids = () => [...control.state.models.keys()].sort();

describe("seed", () => {
  it("file: the five ids are served by it, and their records say so", async () => {
    await start(file);
    expect(ids()).toEqual(IDS);
    expect([...backings()]).toEqual([
      "my-model.gguf, the file that the start was given, in place of this model.",
    ]);
    expect([...control.state.models.values()].every(({ standIn }) => standIn)).toBe(true);
    const [deployment] = control.state.deployments.values();
    expect(deployment?.spec.weights).toEqual({
      key: "my-model",
      file: "my-model.gguf",
      sources: ["file:///models/my%20model.gguf"],
    });
    expect(control.state.deployments.size).toBe(1);
  });

  it("profile after file, and the reverse: takes the ids over", async () => {
    await start(file);
    await start(demo);
    expect(ids()).toEqual(IDS);
    expect([...backings()].join()).toMatch(/^SmolLM2/);
    await start(fileSeed("/elsewhere/my model.gguf"));
    await start(file);
    expect([...backings()].join()).toMatch(/^my-model.gguf/);
    expect(control.state.deployments.size).toBe(1);
    expect(control.state.removedModels.size).toBe(0);
  });

  it("profile gpu: requests a GPU per replica, also for older records", async () => {
    const gpu = profileSeed("gpu");
    for (const shipped of gpu.catalog.models) {
      const known = gpu.catalog.deployments.find(({ spec }) => spec.key === shipped.deployment);
      if (!known) throw new Error("a model lacks its deployment");
      // The path with which it registered them.
      const { key } = known.spec.weights;
      const model = { ...shipped, deployment: key, createdAtMs: 1 };
      const deployment = { spec: { ...known.spec, key }, replicas: 1 } as const;
      await control.propose({ type: "model.register", atMs: 1, model, deployment });
    }
    await start(gpu);
    expect(ids()).toEqual(IDS);
    const { deployments } = control.state;
    expect(deployments.size).toBe(5);
    for (const { replicas, resources } of deployments.values()) {
      expect({ replicas, resources }).toMatchObject({
        replicas: 1,
        resources: { gpuCount: 1, orCpu: true },
      });
      expect(resources?.gpuMemoryGb).toBeGreaterThan(10);
    }
    await start(demo);
    expect([...deployments.values()]).toMatchObject([{ replicas: "every-worker" }]);
    expect([...deployments.values()][0]).not.toHaveProperty("resources");
  });

  it("adds missing ids on a cluster with other models", async () => {
    const [model] = file.catalog.models;
    const spec = file.catalog.deployments[0]?.spec;
    if (!model || !spec) throw new Error("the seed is empty");
    const own = { ...model, id: "my-model", createdAtMs: 1 };
    const deployment = { spec, replicas: 1 } as const;
    await control.propose({ type: "model.register", atMs: 1, model: own, deployment });
    await start(demo);
    expect(ids()).toEqual([...IDS, "my-model"]);
  });

  it("restores no id that an administrator removed", async () => {
    await start(demo);
    await remove("FamilyA-1-2B");
    for (const seed of [demo, profileSeed("tiny"), file]) {
      await start(seed);
      expect(ids()).toEqual(IDS.slice(1));
    }
    for (const id of IDS.slice(1)) await remove(id);
    await start(demo);
    expect(ids()).toEqual([]);
  });

  it("leaves a manually registered id unchanged, also after its removal", async () => {
    await start(demo);
    await remove("FamilyA-1-2B");
    const [model] = demo.catalog.models;
    const shipped = demo.catalog.deployments[0]?.spec;
    if (!model || !shipped) throw new Error("the seed is empty");
    const spec = { ...shipped, key: "by-hand" };
    const own = { ...model, deployment: "by-hand", backing: "mine", createdAtMs: 1 };
    const deployment = { spec, replicas: 1 } as const;
    await control.propose({ type: "model.register", atMs: 1, model: own, deployment });
    await start(file);
    expect(control.state.models.get("FamilyA-1-2B")?.backing).toBe("mine");
    expect(control.state.removedModels.size).toBe(0);
    expect(ids()).toEqual(IDS);
  });
});

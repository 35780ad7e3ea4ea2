// holds: kube-views

import { ConflictError, NotFoundError } from "@heddle/client/errors";
import type { Heddle } from "@heddle/client/heddle";
import {
  type Model,
  type ModelScale,
  type ModelSpec,
  modelOperations,
  registerModelRequest,
} from "@heddle/contracts/api/models";
import fc from "fast-check";
import { beforeEach, expect, it } from "vitest";
import { MemoryObjects } from "../../test/memory-objects.ts";
import { NamespaceAccess } from "../kubernetes/namespace-access.ts";
import { StatusWriter } from "../kubernetes/status-writer.ts";
import { InferenceModels } from "./inference-models.ts";
import type { InferenceModelObject } from "./model-status.ts";

type Spec = InferenceModelObject["spec"];

/** The cluster's models in memory, by the rules of the API; tools/kubernetes has the real ones. */
class MemoryModels {
  readonly #all = new Map<string, Model>();
  registered = 0;
  /** The next registrations are refused. */
  refused = 0;

  async list(): Promise<readonly Model[]> {
    return [...this.#all.values()];
  }

  async get(id: string): Promise<Model> {
    const model = this.#all.get(id);
    if (model) return model;
    throw new NotFoundError(`no ${id}`, { code: "not_found", status: 404 });
  }

  async register(spec: ModelSpec): Promise<Model> {
    if (this.refused-- > 0) throw new ConflictError("full", { code: "conflict", status: 409 });
    this.registered++;
    const { id, replicas, scaling, ...rest } = registerModelRequest.parse(spec);
    const before = this.#all.get(id);
    const model = { ...rest, id, status: "ready", replicas: [], waiting_for: [], adapter: null };
    const count = before ?? scaled({ scaling, ...(!scaling && { replicas }) }, replicas);
    const { wanted_replicas, scaling: bounds } = count as Model;
    this.#all.set(id, { ...model, wanted_replicas, scaling: bounds } as unknown as Model);
    return this.get(id);
  }

  async scale(id: string, count: ModelScale): Promise<Model> {
    const model = await this.get(id);
    this.#all.set(id, { ...model, ...scaled(count, model.wanted_replicas) } as Model);
    return this.get(id);
  }

  /** What the load asks for. */
  async follow(id: string, wanted_replicas: number): Promise<void> {
    const model = await this.get(id);
    if (model.scaling) this.#all.set(id, { ...model, wanted_replicas });
  }
}

function scaled(count: ModelScale, before: Model["wanted_replicas"]): Partial<Model> {
  const { replicas = before, scaling } = modelOperations.scale.body.parse(count);
  if (!scaling) return { wanted_replicas: replicas, scaling: null };
  const { idle_unload_s = null } = scaling;
  return {
    wanted_replicas: Math.min(scaling.max, Math.max(scaling.min, Number(before))),
    scaling: { ...scaling, idle_unload_s, scaled_at: null, reason: null },
  };
}

const access = new NamespaceAccess(new Map(), "ns");
let objects: MemoryObjects<InferenceModelObject>;
let models: MemoryModels;
let reconciler: InferenceModels;

const reconcile = () => reconciler.reconcile(objects.get("mine"), objects.resources);
const source = "builtin://tiny";
const edit = (change: Partial<Spec>) =>
  objects.put("mine", { ...objects.get("mine").spec, ...change });

beforeEach(async () => {
  [objects, models] = [new MemoryObjects("InferenceModel"), new MemoryModels()];
  const statuses = new StatusWriter({ record: async () => {} } as never);
  reconciler = new InferenceModels({ models } as unknown as Heddle, statuses, access);
});

const bounds = fc.oneof(
  fc.record({ min: fc.constant(1), max: fc.integer({ min: 2, max: 4 }) }),
  fc.record({ max: fc.constant(2), idle_unload_s: fc.constantFrom(60, 90) }),
);
const part = fc.oneof(
  fc.record({ replicas: fc.integer({ min: 0, max: 4 }) }),
  fc.record({ scaling: bounds }),
  fc.record({ intended_use: fc.constantFrom("a", "b") }),
  fc.record({ context_window: fc.constantFrom(512, 8_192) }),
);
type Part = { replicas?: number; scaling?: { min: number; max: number } } & Partial<ModelSpec>;

async function changeCluster(part: Part): Promise<void> {
  if ("replicas" in part || "scaling" in part) await models.scale("mine", part as ModelScale);
  else await models.register({ ...(objects.get("mine").spec as object), ...part, id: "mine" });
}

/** As a user edits it: bounds and a number are given instead of each other. */
function changeSpec(part: Part): void {
  if ("replicas" in part) edit({ ...part, scaling: undefined });
  else edit(part as Partial<Spec>);
}

async function expectAgreement(part: Part): Promise<void> {
  const model = await models.get("mine");
  const { spec, status, metadata } = objects.get("mine");
  const { replicas, scaling, ...fields } = part;
  for (const side of [model, spec]) expect(side).toMatchObject(fields);
  if (replicas !== undefined)
    expect(model).toMatchObject({ wanted_replicas: replicas, scaling: null });
  if (scaling) expect(model.scaling).toMatchObject(scaling);
  expect(spec.replicas).toBe(model.wanted_replicas);
  if (model.scaling) expect(model.scaling).toMatchObject(spec.scaling ?? { missing: true });
  else expect(spec.scaling).toBeUndefined();
  expect(status?.observedGeneration).toBe(metadata.generation);
}

it("models: the side that changed last is what both show", async () => {
  const change = fc.record({ side: fc.constantFrom("spec", "cluster"), part });
  await fc.assert(
    fc.asyncProperty(fc.array(change, { maxLength: 15 }), async (changes) => {
      [objects, models] = [new MemoryObjects("InferenceModel"), new MemoryModels()];
      reconciler = new InferenceModels(
        { models } as unknown as Heddle,
        new StatusWriter({ record: async () => {} } as never),
        access,
      );
      objects.put("mine", { source });
      await reconcile();
      await expectAgreement({ replicas: 1 });
      for (const { side, part: changed } of changes) {
        if (side === "spec") changeSpec(changed as Part);
        else await changeCluster(changed as Part);
        await reconcile();
        await expectAgreement(changed as Part);
      }
    }),
    { numRuns: 100 },
  );
});

it("models: changes of both sides to different parts stay", async () => {
  objects.put("mine", { source, replicas: 1 });
  await reconcile();
  await models.scale("mine", { replicas: 3 });
  edit({ intended_use: "tests" });
  await reconcile();
  expect(await models.get("mine")).toMatchObject({ wanted_replicas: 3, intended_use: "tests" });
  expect(objects.get("mine").spec).toMatchObject({ replicas: 3, intended_use: "tests" });
});

it("models: the number that the load asks for is shown, and takes no bounds away", async () => {
  objects.put("mine", { source, scaling: { max: 4 } });
  await reconcile();
  await models.follow("mine", 3);
  await reconcile();
  await reconcile();
  expect(objects.get("mine").spec).toMatchObject({ replicas: 3, scaling: { max: 4 } });
  expect((await models.get("mine")).scaling).toMatchObject({ max: 4 });
  expect(models.registered).toBe(1);
});

it("models: a change that was refused is tried again as it was asked", async () => {
  objects.put("mine", { source, intended_use: "a" });
  await reconcile();
  edit({ intended_use: "b" });
  models.refused = 1;
  expect(await reconcile()).toBeGreaterThan(1_000);
  expect(objects.get("mine").status).toMatchObject({ phase: "Refused", message: "full" });
  await reconcile();
  expect(objects.get("mine").status?.phase).toBe("Ready");
  expect(objects.get("mine").spec.intended_use).toBe("b");
  expect((await models.get("mine")).intended_use).toBe("b");
});

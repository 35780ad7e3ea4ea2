// holds: kube-settings

import fc from "fast-check";
import { beforeEach, expect, it } from "vitest";
import type { CustomResource, ResourceStatus } from "../kubernetes/custom-resource.ts";
import type { NewObject, ResourceApi } from "../kubernetes/resource-api.ts";
import type { Resources } from "../kubernetes/resource-controller.ts";
import { StatusWriter } from "../kubernetes/status-writer.ts";
import type { ClusterThing, SettingsKind, ThingSettings } from "./settings-kind.ts";
import { SettingsReconciler } from "./settings-reconciler.ts";

// An API server's versions and a cluster's settings in memory; tools/kubernetes has the real ones.

interface Spec {
  readonly name?: string | undefined;
  readonly level?: number | undefined;
}
type Thing = CustomResource<Spec, ResourceStatus & { readonly settings?: string | undefined }>;

let objects: Map<string, Thing>;
let cluster: Map<string, ThingSettings>;
let applied: number;

function thing(id: string): ClusterThing | undefined {
  const settings = cluster.get(id);
  return settings && { id, settings, phase: "Open", status: {} };
}

const kind: SettingsKind<Spec> = {
  kind: "Queue",
  plural: "queues",
  list: async () => [...cluster.keys()].map((id) => thing(id)!),
  get: async (id) => thing(id),
  wanted: ({ level = 0 }) => ({ level }),
  apply: async (id, { level = 0 }) => {
    applied++;
    cluster.set(id, { level });
    return thing(id)!;
  },
  patchOf: (settings) => settings,
};

const meta = (name: string) => ({
  name,
  namespace: "ns",
  uid: name,
  resourceVersion: "1",
  generation: 1,
  creationTimestamp: "2026-01-01T00:00:00Z",
});

function put(name: string, spec: Spec): void {
  const before = objects.get(name);
  const metadata = before?.metadata ?? meta(name);
  const generation = metadata.generation + 1;
  const next = { ...metadata, generation, resourceVersion: String(Math.random()) };
  const { apiVersion, kind: type } = { apiVersion: "heddle.dev/v1alpha1", kind: "Queue" };
  objects.set(name, { apiVersion, kind: type, metadata: next, spec, status: before?.status });
}

function current(object: Thing): Thing {
  const found = objects.get(object.metadata.name);
  if (found?.metadata.resourceVersion === object.metadata.resourceVersion) return found;
  throw Object.assign(new Error("the object has been modified"), { statusCode: 409 });
}

const api = {
  create: async (_: string, { metadata, spec }: NewObject) => {
    objects.set(metadata.name, {
      apiVersion: "heddle.dev/v1alpha1",
      kind: "Queue",
      metadata: { ...meta(metadata.name), ...metadata },
      spec,
    });
    return undefined;
  },
  patch: async (object: Thing, { spec }: { spec?: object }) => {
    put(object.metadata.name, { ...current(object).spec, ...spec });
    return objects.get(object.metadata.name)!;
  },
  patchStatus: async (object: Thing, status: object) => {
    const found = current(object);
    const metadata = { ...found.metadata, resourceVersion: String(Math.random()) };
    const next = { ...found, metadata, status: { ...found.status, ...status } };
    objects.set(object.metadata.name, next);
    return next;
  },
  remove: async (object: Thing) => void objects.delete(object.metadata.name),
} as unknown as ResourceApi<Thing>;

const resources: Resources<Thing> = { api, objects: () => objects.values(), expect: () => {} };
const statuses = new StatusWriter({ record: async () => {} } as never);
const queues = new SettingsReconciler(kind, statuses);
const mirrored = new SettingsReconciler(
  { ...kind, mirror: { namespace: "ns", cluster: "one" } },
  statuses,
);
const reconcile = (reconciler = queues) => reconciler.reconcile(objects.get("a")!, resources);

beforeEach(() => {
  [objects, cluster, applied] = [new Map(), new Map(), 0];
});

it("settings: the side that changed last is what both show", async () => {
  const change = fc.record({
    side: fc.constantFrom("spec", "cluster"),
    level: fc.integer({ min: 0, max: 3 }),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(change, { maxLength: 20 }), async (changes) => {
      [objects, cluster] = [new Map(), new Map()];
      put("a", { level: 1 });
      await reconcile();
      for (const { side, level } of changes) {
        if (side === "spec") put("a", { level });
        else cluster.set("a", { level });
        await reconcile();
        expect(cluster.get("a")).toEqual({ level });
        expect(objects.get("a")?.spec.level).toBe(level);
        const { generation } = objects.get("a")!.metadata;
        expect(objects.get("a")?.status).toMatchObject({
          phase: "Open",
          observedGeneration: generation,
        });
      }
    }),
    { numRuns: 100 },
  );
});

it("settings: two changes of the cluster in a row stay", async () => {
  put("a", { level: 1 });
  await reconcile();
  cluster.set("a", { level: 2 });
  await reconcile();
  cluster.set("a", { level: 3 });
  await reconcile();
  expect(objects.get("a")?.spec.level).toBe(3);
  expect(applied).toBe(1);
});

it("settings: a stale copy of the object changes nothing", async () => {
  put("a", { level: 1 });
  await reconcile();
  const stale = objects.get("a")!;
  put("a", { level: 2 });
  await reconcile();
  cluster.set("a", { level: 3 });
  await expect(queues.reconcile(stale, resources)).rejects.toMatchObject({ statusCode: 409 });
  await reconcile();
  expect([cluster.get("a"), objects.get("a")?.spec.level]).toEqual([{ level: 3 }, 3]);
});

it("settings: an object that is deleted leaves the cluster as it is", async () => {
  put("a", { level: 1 });
  await reconcile();
  const object = objects.get("a")!;
  const metadata = { ...object.metadata, deletionTimestamp: "2026-01-01T00:00:00Z" };
  expect(await queues.reconcile({ ...object, metadata }, resources)).toBeUndefined();
  expect(cluster.get("a")).toEqual({ level: 1 });
});

it("settings: objects are made for what the cluster has, and go with it", async () => {
  cluster.set("a", { level: 2 });
  cluster.set("Node_1", { level: 0 });
  await mirrored.look();
  await mirrored.mirror(resources);
  const names = [...objects.keys()];
  expect(names).toEqual(["a", expect.stringMatching(/^node-1-[0-9a-f]{8}$/)]);
  expect(mirrored.idOf(objects.get(names[1]!)!)).toBe("Node_1");
  expect(objects.get("a")?.metadata.labels).toEqual({ "heddle.dev/cluster": "one" });
  // Changed before the operator has seen its own object: that is the cluster's change.
  cluster.set("a", { level: 3 });
  await reconcile(mirrored);
  expect(objects.get("a")?.spec.level).toBe(3);
  await mirrored.mirror(resources);
  expect(objects.size).toBe(2);
  cluster.delete("a");
  await reconcile(mirrored);
  expect(objects.has("a")).toBe(false);
});

it("settings: an object of a user for a node that is not there is refused", async () => {
  put("a", { level: 1 });
  expect(await reconcile(mirrored)).toBeGreaterThan(1_000);
  expect(objects.get("a")?.status).toMatchObject({ phase: "Refused", reason: "NotFound" });
  expect(cluster.size).toBe(0);
});

// holds: kube-settings

import fc from "fast-check";
import { beforeEach, expect, it } from "vitest";
import { MemoryObjects } from "../../test/memory-objects.ts";
import type { CustomResource, ResourceStatus } from "../kubernetes/custom-resource.ts";
import { NamespaceAccess } from "../kubernetes/namespace-access.ts";
import { StatusWriter } from "../kubernetes/status-writer.ts";
import type { ClusterThing, SettingsKind, ThingSettings } from "./settings-kind.ts";
import { SettingsReconciler } from "./settings-reconciler.ts";

interface Spec {
  readonly name?: string | undefined;
  readonly level?: number | undefined;
}
type Thing = CustomResource<Spec, ResourceStatus & { readonly settings?: string | undefined }>;

let objects: MemoryObjects<Thing>;
let cluster: Map<string, ThingSettings>;
let applied: number;

/** Names of things that have one beside their id. */
let called: Map<string, string>;

function thing(id: string): ClusterThing | undefined {
  const settings = cluster.get(id);
  const name = called.get(id);
  return settings && { id, ...(name && { name }), settings, phase: "Open", status: {} };
}

/** No spec may ask for it. */
const UNASKABLE = 9;

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
  patchOf: (settings) => (settings["level"] === UNASKABLE ? undefined : settings),
};

const statuses = new StatusWriter({ record: async () => {} } as never);
const access = new NamespaceAccess(new Map(), "ns");
const queues = new SettingsReconciler(kind, statuses, access);
const mirrored = new SettingsReconciler(
  { ...kind, mirror: { namespace: "ns", cluster: "one" } },
  statuses,
  access,
);
const reconcile = (reconciler = queues) =>
  reconciler.reconcile(objects.get("a"), objects.resources);

beforeEach(() => {
  [objects, cluster, called, applied] = [new MemoryObjects("Queue"), new Map(), new Map(), 0];
});

it("settings: the side that changed last is what both show", async () => {
  const change = fc.record({
    side: fc.constantFrom("spec", "cluster"),
    level: fc.integer({ min: 0, max: 3 }),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(change, { maxLength: 20 }), async (changes) => {
      [objects, cluster] = [new MemoryObjects("Queue"), new Map()];
      objects.put("a", { level: 1 });
      await reconcile();
      for (const { side, level } of changes) {
        if (side === "spec") objects.put("a", { level });
        else cluster.set("a", { level });
        await reconcile();
        expect(cluster.get("a")).toEqual({ level });
        expect(objects.get("a").spec.level).toBe(level);
        const { generation } = objects.get("a").metadata;
        expect(objects.get("a").status).toMatchObject({
          phase: "Open",
          observedGeneration: generation,
        });
      }
    }),
    { numRuns: 100 },
  );
});

it("settings: two changes of the cluster in a row stay", async () => {
  objects.put("a", { level: 1 });
  await reconcile();
  cluster.set("a", { level: 2 });
  await reconcile();
  cluster.set("a", { level: 3 });
  await reconcile();
  expect(objects.get("a").spec.level).toBe(3);
  expect(applied).toBe(1);
});

it("settings: what no spec may ask for is shown, and changes neither side", async () => {
  objects.put("a", { level: 1 });
  await reconcile();
  cluster.set("a", { level: UNASKABLE });
  await reconcile();
  await reconcile();
  expect([cluster.get("a"), objects.get("a").spec.level]).toEqual([{ level: UNASKABLE }, 1]);
  expect(applied).toBe(1);
  objects.put("a", { level: 2 });
  await reconcile();
  expect([cluster.get("a"), objects.get("a").spec.level]).toEqual([{ level: 2 }, 2]);
});

it("settings: a stale copy of the object changes nothing", async () => {
  objects.put("a", { level: 1 });
  await reconcile();
  const stale = objects.get("a");
  objects.put("a", { level: 2 });
  await reconcile();
  cluster.set("a", { level: 3 });
  await expect(queues.reconcile(stale, objects.resources)).rejects.toMatchObject({
    statusCode: 409,
  });
  await reconcile();
  expect([cluster.get("a"), objects.get("a").spec.level]).toEqual([{ level: 3 }, 3]);
});

it("settings: an object that is deleted leaves the cluster as it is", async () => {
  objects.put("a", { level: 1 });
  await reconcile();
  const object = objects.get("a");
  const metadata = { ...object.metadata, deletionTimestamp: "2026-01-01T00:00:00Z" };
  expect(await queues.reconcile({ ...object, metadata }, objects.resources)).toBeUndefined();
  expect(cluster.get("a")).toEqual({ level: 1 });
});

it("settings: objects are made for what the cluster has, and go with it", async () => {
  cluster.set("a", { level: 2 });
  cluster.set("Node_1", { level: 0 });
  await mirrored.poll();
  await mirrored.mirror(objects.resources);
  const names = [...objects.all.keys()];
  expect(names).toEqual(["a", expect.stringMatching(/^node-1-[0-9a-f]{8}$/)]);
  expect(mirrored.idOf(objects.get(names[1]!))).toBe("Node_1");
  expect(objects.get("a").metadata.labels).toEqual({ "heddle.dev/cluster": "one" });
  // Changed before the operator has seen its own object: that is the cluster's change.
  cluster.set("a", { level: 3 });
  await reconcile(mirrored);
  expect(objects.get("a").spec.level).toBe(3);
  await mirrored.mirror(objects.resources);
  expect(objects.all.size).toBe(2);
  cluster.delete("a");
  await reconcile(mirrored);
  expect(objects.all.has("a")).toBe(false);
});

it("settings: an object has its thing's name, or its id where another has the name", async () => {
  for (const id of ["n1", "n2"]) {
    cluster.set(id, { level: 0 });
    called.set(id, "worker-0");
  }
  await mirrored.poll();
  await mirrored.mirror(objects.resources);
  expect([...objects.all.keys()]).toEqual(["worker-0", "n2"]);
  expect(mirrored.idOf(objects.get("worker-0"))).toBe("n1");
  await mirrored.mirror(objects.resources);
  expect(objects.all.size).toBe(2);
});

it("settings: an object of a user for a node that is not there is refused", async () => {
  objects.put("a", { level: 1 });
  expect(await reconcile(mirrored)).toBeGreaterThan(1_000);
  expect(objects.get("a").status).toMatchObject({ phase: "Refused", reason: "NotFound" });
  expect(cluster.size).toBe(0);
});

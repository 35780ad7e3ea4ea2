import { isJsonObject } from "@heddle/base/json-object";
import type { CustomResource, ResourceStatus } from "../src/kubernetes/custom-resource.ts";
import type { NewObject, ResourceApi } from "../src/kubernetes/resource-api.ts";
import type { Resources } from "../src/kubernetes/resource-controller.ts";

const API_VERSION = "heddle.dev/v1alpha1";

/** Objects of one kind with an API server's versions, in memory; tools/kubernetes has the real ones. */
export class MemoryObjects<R extends CustomResource<object, ResourceStatus>> {
  readonly all = new Map<string, R>();
  readonly #kind: string;

  constructor(kind: string) {
    this.#kind = kind;
  }

  get resources(): Resources<R> {
    const objects = () => this.all.values();
    return { api: this.#api, objects, expect: () => {}, hold: async () => {} };
  }

  /** As `kubectl apply`. */
  put(name: string, spec: R["spec"]): void {
    const before = this.all.get(name);
    const metadata = before?.metadata ?? newMetadata(name);
    const generation = metadata.generation + 1;
    const next = { ...metadata, generation, resourceVersion: String(Math.random()) };
    this.#set(name, { metadata: next, spec, status: before?.status });
  }

  get(name: string): R {
    const object = this.all.get(name);
    if (!object) throw new Error(`no object ${name}`);
    return object;
  }

  #set(name: string, parts: object): R {
    const object = { apiVersion: API_VERSION, kind: this.#kind, ...parts } as R;
    this.all.set(name, object);
    return object;
  }

  #current({ metadata }: R): R {
    const found = this.all.get(metadata.name);
    if (found?.metadata.resourceVersion === metadata.resourceVersion) return found;
    throw Object.assign(new Error("the object has been modified"), { statusCode: 409 });
  }

  get #api(): ResourceApi<R> {
    const api = {
      create: async (_: string, { metadata, spec }: NewObject) => {
        const { name } = metadata;
        this.#set(name, { metadata: { ...newMetadata(name), ...metadata }, spec });
      },
      patch: async (object: R, change: { readonly spec?: object; readonly metadata?: object }) => {
        const found = this.#current(object);
        const { name } = found.metadata;
        if (change.spec) this.put(name, patched(found.spec, change.spec));
        const { metadata, spec, status } = this.get(name);
        return this.#set(name, { metadata: { ...metadata, ...change.metadata }, spec, status });
      },
      patchStatus: async (object: R, status: object) => {
        const found = this.#current(object);
        const metadata = { ...found.metadata, resourceVersion: String(Math.random()) };
        const next = { ...found, metadata, status: patched(found.status ?? {}, status) };
        return this.#set(object.metadata.name, next);
      },
      remove: async (object: R) => void this.all.delete(object.metadata.name),
    };
    return api as unknown as ResourceApi<R>;
  }
}

/** A merge patch (RFC 7396): a null removes a field. */
function patched(target: unknown, patch: object): object {
  const before: Readonly<Record<string, unknown>> = isJsonObject(target) ? target : {};
  const changes = Object.entries(patch).filter(([, value]) => value !== undefined);
  const changed = changes.map(([name, value]) => {
    return [name, isJsonObject(value) ? patched(before[name], value) : value] as const;
  });
  const all = Object.entries({ ...before, ...Object.fromEntries(changed) });
  return Object.fromEntries(all.filter(([, value]) => value !== null));
}

/** The metadata of a new object. */
export function newMetadata(name: string): CustomResource<object, ResourceStatus>["metadata"] {
  return {
    name,
    namespace: "ns",
    uid: name,
    resourceVersion: "1",
    generation: 1,
    creationTimestamp: "2026-01-01T00:00:00Z",
  };
}

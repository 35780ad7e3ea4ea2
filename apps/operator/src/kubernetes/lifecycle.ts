import { FINALIZER } from "@heddle/contracts/kubernetes/resource-kind";
import type { ConditionNow } from "./custom-resource.ts";
import { type CustomResource, type ResourceStatus, withConditions } from "./custom-resource.ts";
import type { ResourceApi } from "./resource-api.ts";

type AnyResource = CustomResource<unknown, ResourceStatus>;

export function isDeleting({ metadata }: AnyResource): boolean {
  return metadata.deletionTimestamp !== undefined;
}

export function hasFinalizer({ metadata }: AnyResource): boolean {
  return metadata.finalizers?.includes(FINALIZER) ?? false;
}

/** What `addFinalizer` needs. */
interface FinalizerAdder<R extends AnyResource> {
  readonly api: ResourceApi<R>;
  /** Keeps the operator's rights in the object's namespace, so that it can remove the finalizer. */
  hold(object: R): Promise<void>;
}

/** With it the object stays until the operator has removed what the cluster has for it. */
export async function addFinalizer<R extends AnyResource>(
  { api, hold }: FinalizerAdder<R>,
  object: R,
): Promise<R> {
  if (hasFinalizer(object)) return object;
  await hold(object);
  const finalizers = [...(object.metadata.finalizers ?? []), FINALIZER];
  return api.patch(object, { metadata: { finalizers } });
}

export async function removeFinalizer<R extends AnyResource>(
  api: ResourceApi<R>,
  object: R,
): Promise<void> {
  const finalizers = (object.metadata.finalizers ?? []).filter((each) => each !== FINALIZER);
  await api.patch(object, { metadata: { finalizers } });
}

/** Writes the status unless the object has it already; resolves with the object as it is then. */
export async function writeStatus<R extends AnyResource>(
  api: ResourceApi<R>,
  object: R,
  { conditions, ...status }: { readonly conditions: readonly ConditionNow[] } & object,
): Promise<R> {
  const { generation } = object.metadata;
  const last = object.status?.conditions ?? [];
  const now = new Date().toISOString();
  const wanted = {
    ...status,
    observedGeneration: generation,
    conditions: withConditions(last, conditions, generation, now),
  };
  if (isSubset(wanted, object.status ?? {})) return object;
  return api.patchStatus(object, wanted);
}

/** Whether a merge patch would change nothing. */
function isSubset(patch: object, present: object): boolean {
  return Object.entries(patch).every(([name, value]) => {
    const known = (present as Record<string, unknown>)[name];
    if (value === null || value === undefined) return known === undefined;
    return JSON.stringify(sorted(value)) === JSON.stringify(sorted(known));
  });
}

/** The server may give the fields of an object in another order. */
function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .sort(([left], [right]) => (left < right ? -1 : 1))
      .map(([name, each]) => [name, sorted(each)]),
  );
}

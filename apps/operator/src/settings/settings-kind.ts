import type { ConditionNow } from "../kubernetes/custom-resource.ts";

/** Values that can be compared as texts; undefined and absent are the same. */
export type ThingSettings = Readonly<Record<string, unknown>>;

/** A thing of the Heddle cluster that has settings. */
export interface ClusterThing {
  readonly id: string;
  /** What an object that is made for it is called, unless another has that name; absent: the id. */
  readonly name?: string;
  readonly settings: ThingSettings;
  /** What the status shows beside what all kinds have; null removes a field. */
  readonly status: Readonly<Record<string, unknown>>;
  readonly phase: string;
  readonly reason?: string | null;
  readonly message?: string | null;
  readonly conditions?: readonly ConditionNow[];
}

/** One kind of things with settings, as queues. */
export interface SettingsKind<Spec> {
  readonly kind: string;
  readonly plural: string;
  list(): Promise<readonly ClusterThing[]>;
  get(id: string): Promise<ClusterThing | undefined>;
  /** What the spec asks for, with defaults; undefined where it asks for nothing. */
  wanted(spec: Spec): ThingSettings | undefined;
  apply(id: string, spec: Spec): Promise<ClusterThing>;
  /** The merge patch with which a spec asks for these settings; undefined where none can. */
  patchOf(settings: ThingSettings): object | undefined;
  /** Where the operator creates objects for existing settings; undefined if users create them. */
  readonly mirror?: { readonly namespace: string; readonly cluster: string } | undefined;
}

/** All of a list that is fetched page by page. */
export async function listOf<T>(
  all: AsyncIterable<T>,
  thingOf: (each: T) => ClusterThing,
): Promise<readonly ClusterThing[]> {
  const things: ClusterThing[] = [];
  for await (const each of all) things.push(thingOf(each));
  return things;
}

/** The condition of a spec that is carried out: false after a change that has no effect. */
export const SPEC_CURRENT = "SpecCurrent";

/** The metadata that the operator reads. */
export interface ResourceMetadata {
  readonly name: string;
  readonly namespace: string;
  readonly uid: string;
  readonly resourceVersion: string;
  readonly generation: number;
  readonly creationTimestamp: string;
  readonly deletionTimestamp?: string | undefined;
  readonly finalizers?: readonly string[] | undefined;
  readonly labels?: Readonly<Record<string, string>> | undefined;
  readonly annotations?: Readonly<Record<string, string>> | undefined;
}

/** A custom resource of this operator. */
export interface CustomResource<Spec, Status extends ResourceStatus> {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: ResourceMetadata;
  readonly spec: Spec;
  readonly status?: Status | undefined;
}

export interface Condition {
  readonly type: string;
  readonly status: "True" | "False" | "Unknown";
  readonly observedGeneration: number;
  readonly lastTransitionTime: string;
  /** A word in CamelCase, for programs. */
  readonly reason: string;
  readonly message: string;
}

/** What the status of every kind has; null removes a field. */
export interface ResourceStatus {
  readonly observedGeneration?: number | undefined;
  readonly phase?: string | undefined;
  readonly reason?: string | null | undefined;
  readonly message?: string | null | undefined;
  readonly conditions?: readonly Condition[] | undefined;
}

/** One condition as it is now, before it is compared with the last ones. */
export type ConditionNow = Pick<Condition, "type" | "status" | "reason" | "message">;

/** `NAMESPACE/NAME`. */
export function objectKey({ metadata }: { readonly metadata: ResourceMetadata }): string {
  return `${metadata.namespace}/${metadata.name}`;
}

/** The list with the conditions as they are now; a time changes only with its status. */
export function withConditions(
  last: readonly Condition[],
  now: readonly ConditionNow[],
  observedGeneration: number,
  time: string,
): Condition[] {
  const updated = now.map((condition) => {
    const before = last.find(({ type }) => type === condition.type);
    const isSame = before?.status === condition.status;
    const lastTransitionTime = isSame ? before.lastTransitionTime : time;
    return { ...condition, observedGeneration, lastTransitionTime };
  });
  const others = last.filter(({ type }) => !now.some((condition) => condition.type === type));
  return [...others, ...updated];
}

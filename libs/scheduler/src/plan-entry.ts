/**
 * What a plan places: a whole job, the lost tasks of a recovering job, or one replica of a
 * deployment.
 */
export type PlanEntry =
  | { readonly kind: "job"; readonly jobId: string }
  | { readonly kind: "recovery"; readonly jobId: string }
  | { readonly kind: "replica"; readonly deployment: string };

export function jobEntry(jobId: string): PlanEntry {
  return { kind: "job", jobId };
}

export function replicaEntry(deployment: string): PlanEntry {
  return { kind: "replica", deployment };
}

/**
 * A key for maps and for ties in the queue's order, in which apply sorts too; it is never parsed.
 * Entries of jobs are in the order of their ids.
 */
export function entryKey(entry: PlanEntry): string {
  switch (entry.kind) {
    case "job":
      return entry.jobId;
    case "recovery":
      return `${entry.jobId} recovery`;
    case "replica":
      return `replica of ${entry.deployment}`;
    default:
      return entry satisfies never;
  }
}

export function isSameEntry(a: PlanEntry, b: PlanEntry): boolean {
  return a === b || (a.kind === b.kind && entryKey(a) === entryKey(b));
}

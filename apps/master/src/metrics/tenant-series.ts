import type { Hides } from "@heddle/observability/metrics-text";
import type { ControlPlane } from "../control-plane/control-plane.ts";
import type { Caller } from "../http/identity/caller.ts";

/** The `MetricsText` for callers who may not read the series of all projects. */
export const PUBLIC_METRICS = Symbol("heddle.public-metrics");

/** Labels that say what a project has, whatever their value. */
const OF_TENANTS = ["project", "job"] as const;

/** Whether a caller may read the series of all projects. */
export function seesAllSeries(caller: Caller | null): boolean {
  return ["cluster:read", "jobs:read"].every((each) => caller?.grants.mayEverywhere(each));
}

/** Leaves out the series that name a project, a job, or a model that exists for one project alone. */
export function hidesTenants({ state }: Pick<ControlPlane, "state">): Hides {
  const models = new Set<unknown>();
  const hidden = new Set<unknown>();
  const shown = new Set<unknown>();
  for (const { id, deployment, project } of state.models.values()) {
    if (project !== undefined) models.add(id);
    (project === undefined ? shown : hidden).add(deployment);
  }
  return (labels) =>
    OF_TENANTS.some((label) => Object.hasOwn(labels, label)) ||
    models.has(labels["model_name"]) ||
    (hidden.has(labels["deployment"]) && !shown.has(labels["deployment"]));
}

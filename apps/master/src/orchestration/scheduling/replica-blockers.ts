import { replicaClaim, runsWithoutGpu } from "@heddle/control/jobs/scheduling/replica-claims";
import type { ControlState } from "@heddle/control/state";
import { entryKey } from "@heddle/scheduler/plan-entry";
import { blockerText } from "./explanation-view.ts";
import type { PlanCache } from "./plan-cache.ts";

const ON_CPU =
  "InsufficientGpu: no node of the cluster has GPUs; it runs on a CPU, slowly, until a node with GPUs joins";

/** The blockers of the deployment's next replica as text; empty if none waits. */
export function replicaBlockers(
  state: ControlState,
  plans: PlanCache,
  deployment: string,
): readonly string[] {
  if (runsWithoutGpu(state, deployment)) return [ON_CPU];
  const claim = replicaClaim(state, deployment);
  if (!claim) return [];
  return (plans.allBlockers().get(entryKey(claim.entry)) ?? []).map(blockerText);
}

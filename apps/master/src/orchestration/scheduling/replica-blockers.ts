import { replicaClaim, runsWithoutGpu } from "@heddle/control/jobs/scheduling/replica-claims";
import { entryKey } from "@heddle/scheduler/plan-entry";
import type { ControlPlane } from "../../control-plane/control-plane.ts";
import { blockerText } from "./explanation-view.ts";
import type { PlanCache } from "./plan-cache.ts";
import { stagesWait } from "./stages-wait.ts";

const ON_CPU =
  "InsufficientGpu: no node of the cluster has GPUs; it runs on a CPU, slowly, until a node with GPUs joins";

/** What is said of stages by node instead. */
const OF_STAGES: ReadonlySet<string> = new Set(["InsufficientGpu", "Fragmented"]);

/** The blockers of the deployment's next replica as text; empty if none waits. */
export function replicaBlockers(
  control: ControlPlane,
  plans: PlanCache,
  deployment: string,
): readonly string[] {
  const { state } = control;
  if (runsWithoutGpu(state, deployment)) return [ON_CPU];
  const claim = replicaClaim(state, deployment);
  if (!claim) return [];
  const blockers = plans.allBlockers().get(entryKey(claim.entry)) ?? [];
  if (!claim.request.onePerNode) return blockers.map(blockerText);
  const others = blockers.filter(({ reason }) => !OF_STAGES.has(reason));
  return [stagesWait(control, claim), ...others.map(blockerText)];
}

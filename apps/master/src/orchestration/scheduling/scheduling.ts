import type { ControlPlane } from "../../control-plane/control-plane.ts";
import { CycleMetrics } from "./cycle-metrics.ts";
import { JobExplainer } from "./job-explainer.ts";
import type { LeaseHold } from "./lease-hold.ts";
import { PlanCache } from "./plan-cache.ts";
import { SchedulerCache } from "./scheduler-cache.ts";

/** The parts of scheduling on one master. */
export interface Scheduling {
  readonly cache: SchedulerCache;
  readonly plans: PlanCache;
  readonly explainer: JobExplainer;
  /** Of the cycles that this master led. */
  readonly cycles: CycleMetrics;
}

export function createScheduling(
  control: ControlPlane,
  hold?: Pick<LeaseHold, "untilMs">,
): Scheduling {
  const cache = new SchedulerCache(control, hold);
  const plans = new PlanCache(cache);
  const explainer = new JobExplainer(control, cache, plans);
  return { cache, plans, explainer, cycles: new CycleMetrics() };
}

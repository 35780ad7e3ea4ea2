import type { ControlPlane } from "../../control-plane/control-plane.ts";
import { CycleMetrics } from "./cycle-metrics.ts";
import { JobExplainer } from "./job-explainer.ts";
import type { LeaseHold } from "./lease-hold.ts";
import { PlanCache } from "./plan-cache.ts";
import { SchedulerCache } from "./scheduler-cache.ts";

/** The parts of scheduling on one master. */
export class Scheduling {
  readonly cache: SchedulerCache;
  readonly plans: PlanCache;
  readonly explainer: JobExplainer;
  /** Of the cycles that this master led. */
  readonly cycles = new CycleMetrics();

  constructor(control: ControlPlane, hold?: Pick<LeaseHold, "untilMs">) {
    this.cache = new SchedulerCache(control, hold);
    this.plans = new PlanCache(this.cache);
    this.explainer = new JobExplainer(control, this.cache, this.plans);
  }
}

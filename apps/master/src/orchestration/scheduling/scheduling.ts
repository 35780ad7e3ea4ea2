import type { PluginSet } from "@heddle/plugin-kit/host/plugin-set";
import type { ControlPlane } from "../../control-plane/control-plane.ts";
import { LogClock } from "../../control-plane/log-clock.ts";
import { CycleMetrics } from "./cycle-metrics.ts";
import { JobExplainer } from "./job-explainer.ts";
import type { LeaseHold } from "./lease-hold.ts";
import { PlanCache } from "./plan-cache.ts";
import { PluginPlacement } from "./plugin-placement.ts";
import { SchedulerCache } from "./scheduler-cache.ts";

/** The parts of scheduling on one master. */
export class Scheduling {
  readonly cache: SchedulerCache;
  readonly plans: PlanCache;
  readonly explainer: JobExplainer;
  /** The metrics of the cycles that this master led. */
  readonly cycles = new CycleMetrics();

  readonly placement: Pick<PluginPlacement, "applied" | "known" | "onAnswer">;

  constructor(
    control: ControlPlane,
    hold?: Pick<LeaseHold, "leftMs">,
    plugins: Pick<PluginSet, "usable"> = { usable: [] },
  ) {
    const clock = new LogClock(control);
    this.placement = new PluginPlacement(plugins, control);
    this.cache = new SchedulerCache(control, hold, () => clock.wallMs());
    this.plans = new PlanCache(this.cache, this.placement);
    this.explainer = new JobExplainer(control, this.cache, this.plans);
  }
}

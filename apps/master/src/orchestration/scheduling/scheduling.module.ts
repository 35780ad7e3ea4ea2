import { systemClock } from "@heddle/base/clock";
import { PluginSet } from "@heddle/plugin-kit/host/plugin-set";
import { Module } from "@nestjs/common";
import { MASTER_CONFIG } from "../../config/config.module.ts";
import type { MasterConfig } from "../../config/config.ts";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import { LeaseHold } from "./lease-hold.ts";
import { Scheduling } from "./scheduling.ts";

/** Plans and explanations, which every master makes on demand. */
@Module({
  providers: [
    {
      provide: Scheduling,
      inject: [CONTROL_PLANE, MASTER_CONFIG, PluginSet],
      useFactory: (control: ControlPlane, { jobTimes }: MasterConfig, plugins: PluginSet) =>
        new Scheduling(control, new LeaseHold(control, systemClock, jobTimes.leaseMs), plugins),
    },
  ],
  exports: [Scheduling],
})
export class SchedulingModule {}

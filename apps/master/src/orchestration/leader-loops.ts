import type { Clock } from "@heddle/base/clock";
import type { Logger } from "@heddle/observability/logger";
import { Inject, type OnApplicationShutdown } from "@nestjs/common";
import { LOGGER } from "../config/config.module.ts";
import { CONTROL_PLANE, type ControlPlane } from "../control-plane/control-plane.ts";
import { LogClock } from "../control-plane/log-clock.ts";
import { LeaderLoop, type LeaderTask } from "./leader-loop.ts";

/** Runs what only the active leader does, until the shutdown of the module that provides it. */
export class LeaderLoops implements OnApplicationShutdown {
  readonly #control: ControlPlane;
  readonly #log: Logger;
  /** The clock of the times at which the steps are next due. */
  readonly clock: Clock;
  readonly #loops: LeaderLoop[] = [];

  constructor(@Inject(CONTROL_PLANE) control: ControlPlane, @Inject(LOGGER) log: Logger) {
    this.#control = control;
    this.#log = log;
    this.clock = new LogClock(control);
  }

  run(task: LeaderTask): LeaderLoop {
    const loop = new LeaderLoop(task, this.#control, this.clock, this.#log);
    this.#loops.push(loop);
    return loop;
  }

  onApplicationShutdown(): void {
    for (const loop of this.#loops) loop.close();
  }
}

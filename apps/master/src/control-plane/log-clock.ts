import { type Clock, systemClock } from "@heddle/base/clock";
import type { ControlPlane } from "./control-plane.ts";

/**
 * The time by which the timers of jobs run, never behind that of the log, which only grows. Where a
 * wall clock was set back, it continues at the pace of the monotonic clock.
 */
export class LogClock implements Clock {
  readonly #control: Pick<ControlPlane, "logTimeMs">;
  readonly #clock: Clock;
  /** The highest log time seen, less the monotonic time then. */
  #offsetMs = Number.NEGATIVE_INFINITY;

  constructor(control: Pick<ControlPlane, "logTimeMs">, clock: Clock = systemClock) {
    this.#control = control;
    this.#clock = clock;
  }

  wallMs(): number {
    const monotonicMs = this.#clock.monotonicMs();
    const { logTimeMs = 0 } = this.#control;
    this.#offsetMs = Math.max(this.#offsetMs, logTimeMs - monotonicMs);
    return Math.max(this.#clock.wallMs(), Math.ceil(monotonicMs + this.#offsetMs));
  }

  monotonicMs(): number {
    return this.#clock.monotonicMs();
  }
}

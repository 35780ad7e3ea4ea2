import type { Clock } from "@heddle/base/clock";
import { parseClusterId } from "@heddle/base/cluster-id";
import type { ControlPlane } from "../../control-plane/control-plane.ts";

/** Beyond the lease: how long an old leader may have renewed it, and the steps of two clocks. */
const MARGIN_MS = 5_000;

/**
 * Delays starts of tasks in a restored or recovered cluster. Workers that have not reported yet may
 * run tasks of the previous incarnation until their leases expire.
 */
export class LeaseHold {
  readonly #control: ControlPlane;
  readonly #clock: Pick<Clock, "wallMs">;
  readonly #leaseMs: number;
  readonly #startedAtMs: number;

  constructor(control: ControlPlane, clock: Pick<Clock, "wallMs">, leaseMs: number) {
    this.#control = control;
    this.#clock = clock;
    this.#leaseMs = leaseMs;
    this.#startedAtMs = clock.wallMs();
  }

  /** Wall-clock time until which nothing may start; undefined where anything may. */
  get untilMs(): number | undefined {
    // The number of an incarnation is its time of creation, or a little more where clocks differ.
    const { incarnation } = parseClusterId(this.#control.group?.status().cluster ?? "");
    if (incarnation === 0) return undefined;
    const untilMs = Math.min(incarnation, this.#startedAtMs) + this.#leaseMs + MARGIN_MS;
    return this.#clock.wallMs() < untilMs ? untilMs : undefined;
  }
}

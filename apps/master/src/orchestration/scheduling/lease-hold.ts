import type { Clock } from "@heddle/base/clock";
import { parseClusterId } from "@heddle/base/cluster-id";
import type { ControlPlane } from "../../control-plane/control-plane.ts";

/** Beyond the lease: how long an old leader may have renewed it, and the rates of two clocks. */
const MARGIN_MS = 5_000;

/**
 * Delays starts of tasks in a restored or recovered cluster. Workers that have not reported yet may
 * run tasks of the previous incarnation until their leases expire.
 */
export class LeaseHold {
  readonly #control: ControlPlane;
  readonly #clock: Clock;
  readonly #leaseMs: number;
  /** When this process started, by both clocks. */
  readonly #started: { readonly wallMs: number; readonly monotonicMs: number };

  constructor(control: ControlPlane, clock: Clock, leaseMs: number) {
    this.#control = control;
    this.#clock = clock;
    this.#leaseMs = leaseMs;
    this.#started = { wallMs: clock.wallMs(), monotonicMs: clock.monotonicMs() };
  }

  /** For how long nothing may start; undefined where anything may. */
  get leftMs(): number | undefined {
    // The number of an incarnation is its time of creation, or a little more where clocks differ.
    const { incarnation } = parseClusterId(this.#control.group?.status().cluster ?? "");
    if (incarnation === 0) return undefined;
    const beforeMs = Math.max(0, this.#started.wallMs - incarnation);
    // From here on the wall clock may be set: it decides nothing.
    const passedMs = beforeMs + this.#clock.monotonicMs() - this.#started.monotonicMs;
    // The monotonic clock counts parts of a millisecond, which no view is to show.
    const leftMs = Math.ceil(this.#leaseMs + MARGIN_MS - passedMs);
    return leftMs > 0 ? leftMs : undefined;
  }
}

import { forEachInSteps, type Steps } from "@heddle/base/async/steps";
import { comparePositions, type Position } from "@heddle/control/jobs/index/event-log";
import type { ControlPlane } from "../control-plane/control-plane.ts";
import { keepLatest, quantile } from "../orchestration/scheduling/cycle-metrics.ts";

/** The quantiles of a duration in milliseconds; null without values. */
export interface Quantiles {
  readonly p50: number | null;
  readonly p99: number | null;
}

/**
 * Waiting times of the latest jobs by the log's time: until admission, and until their first
 * places. Derived from the replicated events, so every master reports the same.
 */
export class WaitingTimes {
  readonly #control: ControlPlane;
  #read: Position = { index: 0, ordinal: 0 };
  #admissionsMs: number[] = [];
  #startsMs: number[] = [];

  constructor(control: ControlPlane) {
    this.#control = control;
  }

  /** One run at a time. */
  *figures(): Steps<{ readonly admission_ms: Quantiles; readonly start_ms: Quantiles }> {
    yield* this.#readOn();
    return { admission_ms: quantilesOf(this.#admissionsMs), start_ms: quantilesOf(this.#startsMs) };
  }

  *#readOn(): Steps<void> {
    const { jobs, state } = this.#control;
    const { events } = jobs;
    // A restore may set the state back behind the position.
    if (comparePositions(events.last, this.#read) < 0) {
      this.#read = { index: 0, ordinal: 0 };
      this.#admissionsMs = [];
      this.#startsMs = [];
    }
    yield* forEachInSteps(events.after(this.#read), (event) => {
      const { what, atMs } = event;
      this.#read = event;
      if (what.type !== "job") return;
      const job = state.jobs.get(what.jobId);
      if (!job) return;
      const waitedMs = Math.max(0, atMs - job.submittedAtMs);
      if (what.from === "accepted" && what.state === "pending") {
        keepLatest(this.#admissionsMs, [waitedMs]);
      }
      if (what.state === "scheduled" && what.attempt === 1) keepLatest(this.#startsMs, [waitedMs]);
    });
  }
}

function quantilesOf(values: readonly number[]): Quantiles {
  return { p50: quantile(values, 0.5), p99: quantile(values, 0.99) };
}

import { StepQueue } from "@heddle/base/async/step-queue";
import { IncrementalSnapshot } from "@heddle/control/jobs/scheduling/incremental-snapshot";
import type { SchedulingSnapshot } from "@heddle/scheduler/cycle/scheduling-cycle";
import { Satisfiability } from "@heddle/scheduler/explain/satisfiability";
import type { QueuedJob } from "@heddle/scheduler/model";
import type { ControlPlane } from "../../control-plane/control-plane.ts";
import type { LeaseHold } from "./lease-hold.ts";
import { PlanRefusals } from "./plan-refusals.ts";

/** What scheduling reads of the control plane. */
export type ScheduledState = Pick<ControlPlane, "state" | "jobs" | "appliedIndex">;

/** The incremental snapshot of the cluster, and what else one cycle leaves for the next. */
export class SchedulerCache {
  readonly #control: ScheduledState;
  readonly nowMs: () => number;
  readonly #hold: Pick<LeaseHold, "leftMs"> | undefined;
  readonly refusals = new PlanRefusals();
  readonly satisfiability = new Satisfiability();
  /** Runs all work on a snapshot: its view is shared, and a cycle changes it on the way. */
  readonly work = new StepQueue("explanations of jobs");
  #incremental: IncrementalSnapshot | undefined;

  /** `nowMs`: another clock than the system's, for the time of a past state. */
  constructor(
    control: ScheduledState,
    hold?: Pick<LeaseHold, "leftMs">,
    nowMs: () => number = Date.now,
  ) {
    this.#control = control;
    this.nowMs = nowMs;
    this.#hold = hold;
  }

  /** The snapshot of now, valid until the next call; only for steps in `work`. */
  snapshot(nowMs: number): SchedulingSnapshot {
    const { state, jobs, appliedIndex: index } = this.#control;
    // A restore brings another job index.
    if (this.#incremental?.index !== jobs) this.#incremental = new IncrementalSnapshot(state, jobs);
    const snapshot = this.#incremental.take({ index, nowMs });
    return { ...snapshot, queue: this.#held(this.refusals.delay(snapshot.queue), nowMs) };
  }

  /** After a restore jobs wait as in a backoff; replicas of models do not. */
  #held(queue: readonly QueuedJob[], nowMs: number): readonly QueuedJob[] {
    const leftMs = this.#hold?.leftMs;
    if (leftMs === undefined) return queue;
    const untilMs = nowMs + leftMs;
    return queue.map((job) =>
      job.entry.kind !== "replica" && job.notBeforeMs < untilMs
        ? { ...job, notBeforeMs: untilMs }
        : job,
    );
  }
}

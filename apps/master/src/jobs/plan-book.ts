import type { JobRecord } from "@heddle/control/jobs/records";
import {
  queuedJob,
  type SchedulingView,
  schedulingInput,
} from "@heddle/control/jobs/scheduling-input";
import { type Explanation, explain } from "@heddle/scheduler/explain";
import type { Blocker, Plan, QueuedJob } from "@heddle/scheduler/model";
import { schedule } from "@heddle/scheduler/schedule";
import type { ControlPlane } from "../ports.ts";
import { RoundFigures } from "./round-figures.ts";

/** A plan is shown for so long before it is made anew, where no scheduling loop brings new ones. */
const MAX_AGE_MS = 2_000;
/** Jobs explained per plan; each costs about one round of scheduling. */
const MAX_EXPLAINED = 64;

interface Entry {
  readonly view: SchedulingView;
  readonly plan: Plan;
  readonly atMs: number;
  readonly explained: Map<string, Explanation>;
  readonly blockers: ReadonlyMap<string, readonly Blocker[]>;
}

/**
 * The latest plan, for whoever asks why a job waits. The leader's loop writes each of its plans
 * here; on another master, whose state is the same, one is made when it is asked for.
 */
export class PlanBook {
  readonly #control: ControlPlane;
  /** What the rounds of scheduling on this master were like. */
  readonly rounds = new RoundFigures();
  #latest: Entry | undefined;

  constructor(control: ControlPlane) {
    this.#control = control;
  }

  publish(view: SchedulingView, plan: Plan): void {
    const pending = [...plan.pending, ...view.withheld];
    this.#latest = {
      view,
      plan,
      atMs: view.input.nowMs,
      explained: new Map(),
      blockers: new Map(pending.map(({ jobId, blockers }) => [jobId, blockers])),
    };
  }

  /** What holds the job back by the latest plan; empty for one that the plan starts. */
  blockers(job: JobRecord): readonly Blocker[] {
    return this.#entry(job.changedIndex).blockers.get(job.id) ?? [];
  }

  /** By job, what holds it back. */
  allBlockers(): ReadonlyMap<string, readonly Blocker[]> {
    return this.#entry(0).blockers;
  }

  /** Everything that can be told of a job that has not started. */
  explain(job: JobRecord): Explanation {
    const entry = this.#entry(job.changedIndex);
    const known = entry.explained.get(job.id);
    if (known) return known;
    const { input } = entry.view;
    const queued = input.queue.find(({ id }) => id === job.id);
    const made = explain(input, entry.plan, queued ?? this.#queued(job));
    const explanation = { ...made, blockers: this.blockers(job) };
    if (entry.explained.size < MAX_EXPLAINED) entry.explained.set(job.id, explanation);
    return explanation;
  }

  /** What would become of a job that were submitted now, without a change. */
  tryOut(queued: QueuedJob): { readonly plan: Plan; readonly explanation: Explanation } {
    const { input } = this.#entry(0).view;
    const withJob = { ...input, queue: [...input.queue, queued] };
    const plan = schedule(withJob);
    return { plan, explanation: explain(withJob, plan, queued) };
  }

  /** The scheduler's input of the latest plan. */
  get view(): SchedulingView {
    return this.#entry(0).view;
  }

  #queued(job: JobRecord): QueuedJob {
    return queuedJob(this.#control.state, this.#control.jobs, job);
  }

  /** The latest plan, made anew where it is old or does not know the job as it is. */
  #entry(index: number): Entry {
    const nowMs = Date.now();
    const known = this.#latest;
    if (known && nowMs - known.atMs < MAX_AGE_MS && known.plan.basedOnIndex >= index) return known;
    const { state, jobs, appliedIndex } = this.#control;
    const view = schedulingInput(state, jobs, { index: appliedIndex, nowMs });
    this.publish(view, schedule(view.input));
    return this.#latest!;
  }
}

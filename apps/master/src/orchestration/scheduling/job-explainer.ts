import type { Steps } from "@heddle/base/async/steps";
import { BoundedMap } from "@heddle/base/collections/bounded-map";
import type { SubmitJob } from "@heddle/contracts/api/job-spec";
import {
  type PreviousReservation,
  type SpecChange,
  specChanges,
} from "@heddle/control/jobs/commands/spec-changes";
import type { JobRecord, TaskRecord } from "@heddle/control/jobs/records/records";
import { waitingEntry } from "@heddle/control/jobs/records/recovery";
import { fewestTasks, taskRequest } from "@heddle/control/jobs/records/task-request";
import {
  leavesByMs,
  queuedFrom,
  queuedJob,
  tasksOf,
} from "@heddle/control/jobs/scheduling/scheduling-input";
import { runtimeBoundMs } from "@heddle/scheduler/cluster/precedence";
import type { SchedulingSnapshot } from "@heddle/scheduler/cycle/scheduling-cycle";
import { explain, variantFitter } from "@heddle/scheduler/explain/explain";
import { withDecisive } from "@heddle/scheduler/explain/satisfiability";
import type { Blocker, Plan, QueuedJob } from "@heddle/scheduler/model";
import { entryKey, isSameEntry, type PlanEntry } from "@heddle/scheduler/plan-entry";
import { decideInSteps } from "@heddle/scheduler/schedule";
import type { WaitingExplanation } from "./explanation-view.ts";
import type { CachedPlan, PlanCache } from "./plan-cache.ts";
import type { ScheduledState, SchedulerCache } from "./scheduler-cache.ts";

/** Explanations kept; each costs some scheduling cycles. */
const MAX_EXPLAINED = 256;
/** Nodes and jobs with resources, up to which each new plan may have its jobs explained again. */
const SMALL_CLUSTER = 1_000;
/** On a larger cluster an explanation is kept for this many times its cost, at most MAX_KEPT_MS. */
const KEPT_FOR_COST = 20;
const MAX_KEPT_MS = 30_000;
const MS_PER_HOUR = 3_600_000;

/** An explanation and what it is valid for. */
interface CachedExplanation {
  readonly explanation: WaitingExplanation;
  /** Identifies the job's version. */
  readonly of: string;
  readonly planNumber: number;
  readonly freshUntilMs: number;
}

/** The outcome of a dry run. */
export interface Trial {
  readonly plan: Plan;
  readonly explanation: WaitingExplanation;
  readonly neverFits: readonly Blocker[];
}

/** Explains why jobs wait, under the latest plan, and tries out jobs that are not submitted. */
export class JobExplainer {
  readonly #control: ScheduledState;
  readonly #cache: SchedulerCache;
  readonly #plans: PlanCache;
  /** Keyed by job id, the latest last. */
  readonly #explained = new BoundedMap<string, CachedExplanation>(MAX_EXPLAINED);

  constructor(control: ScheduledState, cache: SchedulerCache, plans: PlanCache) {
    this.#control = control;
    this.#cache = cache;
    this.#plans = plans;
  }

  /**
   * The explanation of a job that waits; undefined for one that needs no place. On a large cluster an
   * unchanged job is explained so seldom that this takes a twentieth of the time.
   */
  explain(job: JobRecord): Promise<WaitingExplanation | undefined> {
    return this.#cache.work.run(() => this.#explain(job));
  }

  /** What would become of the job if it were submitted now; nothing is changed. */
  dryRun(queued: QueuedJob, spec: SubmitJob): Promise<Trial> {
    return this.#cache.work.run(() => this.#dryRun(queued, spec));
  }

  *#explain(job: JobRecord): Steps<WaitingExplanation | undefined> {
    const lost = this.#tasks(job, "lost");
    const of = `${job.changedIndex} ${job.liveTasks} ${lost}`;
    const known = this.#explained.get(job.id);
    const isSame = known?.of === of;
    if (isSame && this.#cache.nowMs() < known.freshUntilMs) return known.explanation;
    const latest = yield* this.#plans.latest(job.changedIndex);
    const isLeft = job.state === "recovering" ? lost > 0 : job.liveTasks > 0;
    // While tasks are left the explanation depends on nodes, which can change without a new plan.
    const isCurrent = known?.planNumber === latest.number && !(isLeft && this.#isSmall);
    if (isSame && isCurrent) return known.explanation;
    const startedMs = performance.now();
    const made = isLeft
      ? yield* this.#explainLeaving(job, latest)
      : yield* this.#explainWaiting(job, latest);
    if (!made) return undefined;
    const costMs = performance.now() - startedMs;
    const keptMs = this.#isSmall ? 0 : Math.min(MAX_KEPT_MS, KEPT_FOR_COST * costMs);
    this.#explained.set(job.id, {
      explanation: made,
      of,
      planNumber: latest.number,
      freshUntilMs: this.#cache.nowMs() + keptMs,
    });
    return made;
  }

  get #isSmall(): boolean {
    const { state, jobs } = this.#control;
    return state.nodes.size + jobs.holdings.size <= SMALL_CLUSTER;
  }

  *#explainWaiting(job: JobRecord, latest: CachedPlan): Steps<WaitingExplanation | undefined> {
    const entry = waitingEntry(job);
    const snapshot = this.#cache.snapshot(this.#cache.nowMs());
    const queued =
      snapshot.queue.find((each) => isSameEntry(each.entry, entry)) ?? this.#queuedAs(job);
    if (!queued) return undefined;
    yield;
    const made = yield* explain(snapshot, latest.plan, this.#chosen(queued));
    // A job that runs already, or on a cluster without nodes, is not unsatisfiable.
    const mayBeNever = !queued.joinsRunning && snapshot.view.roster.size > 0;
    const { satisfiability } = this.#cache;
    const never = mayBeNever ? yield* satisfiability.neverFits(snapshot, queued) : [];
    const blockers = withDecisive(never, latest.blockers.get(entryKey(entry)) ?? []);
    const spec = this.#control.state.specs.get(job.id);
    // A running job keeps its spec; the spec is missing if the job was forgotten meanwhile.
    const isFixed = queued.joinsRunning || !spec;
    const changes = isFixed ? [] : yield* this.#changes(snapshot, latest.plan, spec, queued);
    return { ...made, blockers, changes };
  }

  /** A job of which tasks are left: it starts again once they have ended or are fenced. */
  *#explainLeaving(job: JobRecord, { plan }: CachedPlan): Steps<WaitingExplanation> {
    const { state } = this.#control;
    const lost = this.#tasks(job, "lost");
    const leaving = job.state === "recovering" ? 0 : job.liveTasks - lost;
    const notBeforeMs = Math.max(job.notBeforeMs ?? 0, leavesByMs(state, job));
    const snapshot = this.#cache.snapshot(this.#cache.nowMs());
    const queued = { ...this.#queued(job), notBeforeMs };
    const made = yield* explain(snapshot, plan, queued);
    const rest = { free: 0, limit: job.tasks };
    const all: Blocker[] = [
      { reason: "NodesLost", resource: "tasks_to_fence", requested: lost, ...rest },
      { reason: "PreemptionInProgress", resource: "tasks_leaving", requested: leaving, ...rest },
    ];
    const blockers = all.filter(({ requested }) => requested > 0);
    return { ...made, blockers, changes: [] };
  }

  #tasks(job: JobRecord, wanted: TaskRecord["phase"]): number {
    return tasksOf(this.#control.state, job).filter(({ phase }) => phase === wanted).length;
  }

  #queuedAs(job: JobRecord): QueuedJob | undefined {
    return job.state === "recovering" ? undefined : this.#queued(job);
  }

  *#dryRun(queued: QueuedJob, spec: SubmitJob): Steps<Trial> {
    const snapshot = this.#cache.snapshot(this.#cache.nowMs());
    const withJob = { ...snapshot, queue: [...snapshot.queue, queued] };
    const plan = yield* decideInSteps(withJob);
    const neverFits = yield* this.#cache.satisfiability.neverFits(snapshot, queued);
    const changes = yield* this.#changes(withJob, plan, spec, queued);
    const made = yield* explain(withJob, plan, queued);
    const blockers = withDecisive(neverFits, made.blockers);
    return { plan, explanation: { ...made, blockers, changes }, neverFits };
  }

  /**
   * The changes of the spec that would have the job start now, or make possible a job that can
   * never run. There are none for one that the plan starts.
   */
  *#changes(
    snapshot: SchedulingSnapshot,
    plan: Plan,
    spec: SubmitJob,
    job: QueuedJob,
  ): Steps<SpecChange[]> {
    const { entry, waitingFor, notBeforeMs } = job;
    if (plan.starts.some((start) => isSameEntry(start.entry, entry))) return [];
    if (waitingFor.length > 0 || notBeforeMs > snapshot.nowMs) return [];
    const others = snapshot.queue.filter((each) => !isSameEntry(each.entry, entry));
    const variant = (changed: SubmitJob): QueuedJob => {
      const tasks = changed.tasks ?? fewestTasks(changed, this.#control.state.nodes.values());
      return queuedFrom(entry, changed, { ...job, tasks }, taskRequest(changed, tasks));
    };
    const { satisfiability } = this.#cache;
    const plans = this.#plans;
    const fits = yield* variantFitter(snapshot, plan, job);
    function* isPossible(changed: SubmitJob): Steps<boolean> {
      return (yield* satisfiability.neverFits(snapshot, variant(changed))).length === 0;
    }
    return yield* specChanges(spec, {
      fits: (changed) => fits(this.#chosen(variant(changed))),
      isPossible: (yield* isPossible(spec)) ? undefined : isPossible,
      boundHours: runtimeBoundMs(job, snapshot.settings) / MS_PER_HOUR,
      reservations: reservationsBefore(snapshot, plan, entry),
      *starts(changed) {
        const queue = plans.withChoices([...others, variant(changed)]);
        const { starts } = yield* decideInSteps({ ...snapshot, queue });
        return starts.some((start) => isSameEntry(start.entry, entry));
      },
    });
  }

  /** The nodes that plugins exclude count for a plan, never for whether a job can run one day. */
  #chosen(job: QueuedJob): QueuedJob {
    return this.#plans.withChoices([job])[0] ?? job;
  }

  #queued(job: JobRecord): QueuedJob {
    return queuedJob(this.#control.state, this.#control.jobs, job);
  }
}

/** The reservations that were made before the entry's turn. */
function reservationsBefore(
  { queue, nowMs }: SchedulingSnapshot,
  plan: Plan,
  own: PlanEntry,
): PreviousReservation[] {
  const pending = plan.pending.find(({ entry }) => isSameEntry(entry, own));
  const earlier = plan.reservations.slice(0, pending?.reservationsAhead ?? 0);
  return earlier.flatMap(({ entry, startAtMs }) => {
    const holder = queue.find((each) => isSameEntry(each.entry, entry));
    const inHours = (startAtMs - nowMs) / MS_PER_HOUR;
    return holder ? [{ qosLevel: holder.qosLevel, priority: holder.priority, inHours }] : [];
  });
}

import { toAppError } from "@heddle/base/errors";
import type { SubmitJob } from "@heddle/contracts/jobs";
import {
  type PromiseBefore,
  type SpecChange,
  specChanges,
} from "@heddle/control/jobs/commands/spec-changes";
import type { JobRecord, TaskRecord } from "@heddle/control/jobs/records/records";
import { RECOVERY_SUFFIX } from "@heddle/control/jobs/records/recovery";
import { fewestTasks, taskRequest } from "@heddle/control/jobs/records/task-request";
import { IncrementalSnapshot } from "@heddle/control/jobs/scheduling/incremental-snapshot";
import {
  claimedDeployment,
  claimId,
  replicaClaim,
  runsWithoutGpu,
} from "@heddle/control/jobs/scheduling/replica-claims";
import {
  leavesByMs,
  queuedFrom,
  queuedJob,
  tasksOf,
} from "@heddle/control/jobs/scheduling/scheduling-input";
import { runtimeBoundMs } from "@heddle/scheduler/cluster/precedence";
import type { SchedulingSnapshot } from "@heddle/scheduler/cycle/scheduling-cycle";
import { explain, variantFitter } from "@heddle/scheduler/explain/explain";
import { Satisfiability, withDecisive } from "@heddle/scheduler/explain/satisfiability";
import type { Blocker, Plan, QueuedJob } from "@heddle/scheduler/model";
import { decideInSteps } from "@heddle/scheduler/schedule";
import type { ControlPlane } from "../../control-plane/control-plane.ts";
import { blockerText, type WaitingExplanation } from "./explanation-view.ts";
import type { LeaseHold } from "./lease-hold.ts";
import { PlanRefusals } from "./plan-refusals.ts";
import { RoundFigures } from "./round-figures.ts";
import { StepQueue, type Steps } from "./step-queue.ts";

/** A plan is shown for so long before it is made anew, where no scheduling loop brings new ones. */
const MAX_AGE_MS = 2_000;
/** Explanations that are kept; each costs some rounds of scheduling. */
const MAX_EXPLAINED = 256;
/** Nodes and jobs that hold something, up to which explaining is cheap enough for each new plan. */
const SMALL_CLUSTER = 1_000;
/**
 * On a larger one an explanation is told again for so many times as long as it took to make, and half
 * a minute at most, whatever plans come.
 */
const KEPT_FOR_COST = 20;
const MAX_KEPT_MS = 30_000;
const MS_PER_HOUR = 3_600_000;
/** What is told of a replica that would have a GPU where there is none. */
const ON_CPU =
  "InsufficientGpu: no node of the cluster has GPUs; it runs on a CPU, slowly, until a node with GPUs joins";

interface Entry {
  /** Counts the plans: what is kept of an older one must not keep that alive. */
  readonly number: number;
  readonly plan: Plan;
  readonly atMs: number;
  readonly blockers: ReadonlyMap<string, readonly Blocker[]>;
}

/** An explanation, and what it holds for. */
interface Explained {
  readonly explanation: WaitingExplanation;
  /** The job as it was. */
  readonly of: string;
  readonly planNumber: number;
  readonly freshUntilMs: number;
}

/** What would become of a job. */
export interface Trial {
  readonly plan: Plan;
  readonly explanation: WaitingExplanation;
  readonly neverFits: readonly Blocker[];
}

/**
 * The scheduler's view of the cluster, kept up to date, and the latest plan, for whoever asks why a
 * job waits. The leader's loop writes each of its plans here; on another master, whose state is the
 * same, one is made when it is asked for.
 */
export class PlanBook {
  readonly #control: ControlPlane;
  readonly #hold: Pick<LeaseHold, "untilMs"> | undefined;
  /** What the rounds of scheduling on this master were like. */
  readonly rounds = new RoundFigures();
  readonly refusals = new PlanRefusals();
  readonly satisfiability = new Satisfiability();
  /** All that looks at the standing: the layout in it is one for all, and changed on the way. */
  readonly work = new StepQueue();
  #isRefreshing = false;
  #live: IncrementalSnapshot | undefined;
  #latest: Entry | undefined;
  /** By job id, the latest last. */
  readonly #explained = new Map<string, Explained>();

  constructor(control: ControlPlane, hold?: Pick<LeaseHold, "untilMs">) {
    this.#control = control;
    this.#hold = hold;
  }

  /** What the scheduler decides on now; to be asked for in `work` alone, it holds until the next call. */
  view(nowMs: number): SchedulingSnapshot {
    const { state, jobs, appliedIndex: index } = this.#control;
    // After a restore there is another index, and what was kept is of no use.
    if (this.#live?.index !== jobs) this.#live = new IncrementalSnapshot(state, jobs);
    const standing = this.#live.view({ index, nowMs });
    return { ...standing, queue: this.#held(this.refusals.delay(standing.queue)) };
  }

  /** After a restore jobs wait as after a failure; replicas of models do not. */
  #held(queue: readonly QueuedJob[]): readonly QueuedJob[] {
    const untilMs = this.#hold?.untilMs;
    if (untilMs === undefined) return queue;
    return queue.map((job) =>
      claimedDeployment(job.id) === undefined && job.notBeforeMs < untilMs
        ? { ...job, notBeforeMs: untilMs }
        : job,
    );
  }

  publish({ nowMs: atMs }: SchedulingSnapshot, plan: Plan): void {
    this.#latest = {
      number: (this.#latest?.number ?? 0) + 1,
      plan,
      atMs,
      blockers: new Map(plan.pending.map(({ jobId, blockers }) => [jobId, blockers])),
    };
  }

  /** What holds the job back by the latest plan; empty for one that the plan starts. */
  blockers(job: JobRecord): readonly Blocker[] {
    return this.#entry(job.changedIndex)?.blockers.get(job.id) ?? [];
  }

  /** In words, what holds back the next replica of the deployment; empty where none waits. */
  replicaBlockers(deployment: string): readonly string[] {
    const { state } = this.#control;
    if (runsWithoutGpu(state, deployment)) return [ON_CPU];
    if (!replicaClaim(state, deployment)) return [];
    const blockers = this.allBlockers().get(claimId(deployment)) ?? [];
    return blockers.map(blockerText);
  }

  /** By job, what holds it back. */
  allBlockers(): ReadonlyMap<string, readonly Blocker[]> {
    return this.#entry(0)?.blockers ?? new Map();
  }

  /**
   * Everything that can be told of a job that waits; undefined for one that needs no place now. It is
   * made anew for a new plan; on a large cluster, as long as the job is the same, so seldom that
   * explaining a job takes a twentieth of the time, however often it is asked for.
   */
  explain(job: JobRecord): Promise<WaitingExplanation | undefined> {
    return this.work.run(() => this.#explain(job));
  }

  *#explain(job: JobRecord): Steps<WaitingExplanation | undefined> {
    const lost = this.#tasks(job, "lost");
    const of = `${job.changedIndex} ${job.liveTasks} ${lost}`;
    const known = this.#explained.get(job.id);
    const isSame = known?.of === of;
    if (isSame && Date.now() < known.freshUntilMs) return known.explanation;
    const entry = yield* this.#entryInSteps(job.changedIndex);
    const isLeft = job.state === "recovering" ? lost > 0 : job.liveTasks > 0;
    // What it waits for while tasks of it are left hangs on nodes, which no plan need follow.
    const isTold = known?.planNumber === entry.number && !(isLeft && this.#isSmall);
    if (isSame && isTold) return known.explanation;
    const startedMs = performance.now();
    const made = isLeft
      ? this.#explainUntilLeft(job, entry)
      : yield* this.#explainWaiting(job, entry);
    if (!made) return undefined;
    const costMs = performance.now() - startedMs;
    const keptMs = this.#isSmall ? 0 : Math.min(MAX_KEPT_MS, KEPT_FOR_COST * costMs);
    this.#keep(job.id, {
      ...{ explanation: made, of, planNumber: entry.number },
      freshUntilMs: Date.now() + keptMs,
    });
    return made;
  }

  get #isSmall(): boolean {
    const { state, jobs } = this.#control;
    return state.nodes.size + jobs.holdings.size <= SMALL_CLUSTER;
  }

  #keep(id: string, explained: Explained): void {
    this.#explained.delete(id);
    this.#explained.set(id, explained);
    const oldest = this.#explained.keys().next();
    if (this.#explained.size > MAX_EXPLAINED && !oldest.done) this.#explained.delete(oldest.value);
  }

  *#explainWaiting(job: JobRecord, entry: Entry): Steps<WaitingExplanation | undefined> {
    const id = job.state === "recovering" ? `${job.id}${RECOVERY_SUFFIX}` : job.id;
    const standing = this.view(Date.now());
    const queued = standing.queue.find((each) => each.id === id) ?? this.#queuedAs(job);
    if (!queued) return undefined;
    yield;
    const made = explain(standing, entry.plan, queued);
    yield;
    // What runs already, and what waits for the first node, is not for ever without a place.
    const isJudged = !queued.joinsRunning && standing.layout.roster.size > 0;
    const never = isJudged ? this.satisfiability.neverFits(standing, queued) : [];
    const blockers = withDecisive(never, entry.blockers.get(id) ?? []);
    const spec = this.#control.state.specs.get(job.id);
    // What runs already keeps its spec; one may be forgotten meanwhile.
    const isFixed = queued.joinsRunning || !spec;
    const changes = isFixed ? [] : yield* this.#changes(standing, entry.plan, spec, queued);
    return { ...made, blockers, changes };
  }

  /** A job that must start anew, or have tasks replaced, once what it had before is surely over. */
  #explainUntilLeft(job: JobRecord, { plan }: Entry): WaitingExplanation {
    const { state } = this.#control;
    const lost = this.#tasks(job, "lost");
    const leaving = job.state === "recovering" ? 0 : job.liveTasks - lost;
    const notBeforeMs = Math.max(job.notBeforeMs ?? 0, leavesByMs(state, job));
    const standing = this.view(Date.now());
    const made = explain(standing, plan, { ...this.#queued(job), notBeforeMs });
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

  /** What would become of a job that were submitted now, without a change. */
  tryOut(queued: QueuedJob, spec: SubmitJob): Promise<Trial> {
    return this.work.run(() => this.#tryOut(queued, spec));
  }

  *#tryOut(queued: QueuedJob, spec: SubmitJob): Steps<Trial> {
    const standing = this.view(Date.now());
    const withJob = { ...standing, queue: [...standing.queue, queued] };
    const plan = yield* decideInSteps(withJob);
    const neverFits = this.satisfiability.neverFits(standing, queued);
    const changes = yield* this.#changes(withJob, plan, spec, queued);
    const made = explain(withJob, plan, queued);
    const blockers = withDecisive(neverFits, made.blockers);
    return { plan, explanation: { ...made, blockers, changes }, neverFits };
  }

  /**
   * What of the spec would have the job start now, or make one possible that can never run; empty for
   * one that the plan starts.
   */
  *#changes(
    standing: SchedulingSnapshot,
    plan: Plan,
    spec: SubmitJob,
    job: QueuedJob,
  ): Steps<SpecChange[]> {
    const { id, waitingFor, notBeforeMs } = job;
    if (plan.starts.some(({ jobId }) => jobId === id)) return [];
    if (waitingFor.length > 0 || notBeforeMs > standing.nowMs) return [];
    const others = standing.queue.filter((each) => each.id !== id);
    const variant = (changed: SubmitJob): QueuedJob => {
      const tasks = changed.tasks ?? fewestTasks(changed, this.#control.state.nodes.values());
      return queuedFrom(changed, { ...job, tasks }, taskRequest(changed, tasks));
    };
    const fits = variantFitter(standing, plan, job);
    const isPossible = (changed: SubmitJob): boolean =>
      this.satisfiability.neverFits(standing, variant(changed)).length === 0;
    return yield* specChanges(spec, {
      fits: (changed) => fits(variant(changed)),
      isPossible: isPossible(spec) ? undefined : isPossible,
      boundHours: runtimeBoundMs(job, standing.settings) / MS_PER_HOUR,
      promises: promisesBefore(standing, plan, id),
      *starts(changed) {
        const queue = [...others, variant(changed)];
        const { starts } = yield* decideInSteps({ ...standing, queue });
        return starts.some(({ jobId }) => jobId === id);
      },
    });
  }

  #queued(job: JobRecord): QueuedJob {
    return queuedJob(this.#control.state, this.#control.jobs, job);
  }

  /** The latest plan; where it is old, one is made for those who ask later. */
  #entry(index: number): Entry | undefined {
    const isNew = this.#latest && Date.now() - this.#latest.atMs < MAX_AGE_MS;
    if (isNew && this.#latest!.plan.basedOnIndex >= index) return this.#latest;
    if (!this.#isRefreshing) {
      this.#isRefreshing = true;
      void this.refresh(index).finally(() => (this.#isRefreshing = false));
    }
    return this.#latest;
  }

  /** Resolves when the latest plan is new and knows the log up to the index, or too much is asked. */
  async refresh(index = 0): Promise<void> {
    try {
      await this.work.run(() => this.#entryInSteps(index));
    } catch (error) {
      if (toAppError(error).code !== "overloaded") throw error;
    }
  }

  /** The latest plan, made anew where it is old or does not know the job as it is. */
  *#entryInSteps(index: number): Steps<Entry> {
    const nowMs = Date.now();
    const known = this.#latest;
    if (known && nowMs - known.atMs < MAX_AGE_MS && known.plan.basedOnIndex >= index) return known;
    const standing = this.view(nowMs);
    this.publish(standing, yield* decideInSteps(standing));
    return this.#latest!;
  }
}

/** The promises that were made before the job's turn. */
function promisesBefore(
  { queue, nowMs }: SchedulingSnapshot,
  plan: Plan,
  id: string,
): PromiseBefore[] {
  const pending = plan.pending.find(({ jobId }) => jobId === id);
  return plan.reservations.slice(0, pending?.promisesAhead ?? 0).flatMap(({ jobId, startAtMs }) => {
    const holder = queue.find((each) => each.id === jobId);
    const inHours = (startAtMs - nowMs) / MS_PER_HOUR;
    return holder ? [{ qosLevel: holder.qosLevel, priority: holder.priority, inHours }] : [];
  });
}

import type { Steps } from "@heddle/base/async/steps";
import { toAppError } from "@heddle/base/errors";
import type { JobRecord } from "@heddle/control/jobs/records/records";
import { waitingEntry } from "@heddle/control/jobs/records/recovery";
import type { SchedulingSnapshot } from "@heddle/scheduler/cycle/scheduling-cycle";
import type { Blocker, Plan, QueuedJob } from "@heddle/scheduler/model";
import { entryKey } from "@heddle/scheduler/plan-entry";
import { decideInSteps } from "@heddle/scheduler/schedule";
import type { PluginPlacement } from "./plugin-placement.ts";
import type { SchedulerCache } from "./scheduler-cache.ts";

/** The age at which a plan is made again if no scheduling loop publishes new ones. */
const MAX_AGE_MS = 2_000;

/** A plan with the blockers of its pending entries by their keys. */
export interface CachedPlan {
  /** Counts the plans. */
  readonly number: number;
  readonly plan: Plan;
  readonly atMs: number;
  readonly blockers: ReadonlyMap<string, readonly Blocker[]>;
}

/**
 * The latest plan. The leader's scheduling loop publishes its plans here; another master, which has the
 * same state, makes one on demand.
 */
export class PlanCache {
  readonly #cache: SchedulerCache;
  readonly #placement: Pick<PluginPlacement, "known"> | undefined;
  #isRefreshing = false;
  #latest: CachedPlan | undefined;

  constructor(cache: SchedulerCache, placement?: Pick<PluginPlacement, "known">) {
    this.#cache = cache;
    this.#placement = placement;
  }

  /** The jobs with what plugins have said of them. */
  withChoices(jobs: readonly QueuedJob[]): readonly QueuedJob[] {
    return this.#placement?.known(jobs, this.#cache.nowMs()) ?? jobs;
  }

  publish({ nowMs: atMs }: SchedulingSnapshot, plan: Plan): CachedPlan {
    this.#latest = {
      number: (this.#latest?.number ?? 0) + 1,
      plan,
      atMs,
      blockers: new Map(plan.pending.map(({ entry, blockers }) => [entryKey(entry), blockers])),
    };
    return this.#latest;
  }

  /** The job's blockers in the latest plan; empty for a job that the plan starts. */
  blockers(job: JobRecord): readonly Blocker[] {
    return this.#known(job.changedIndex)?.blockers.get(entryKey(waitingEntry(job))) ?? [];
  }

  /** The blockers of all pending entries by their keys. */
  allBlockers(): ReadonlyMap<string, readonly Blocker[]> {
    return this.#known(0)?.blockers ?? new Map();
  }

  /** Resolves when the latest plan is new and covers the index, or when the queue of steps is full. */
  async refresh(index = 0): Promise<void> {
    try {
      await this.#cache.work.run(() => this.latest(index));
    } catch (error) {
      if (toAppError(error).code !== "overloaded") throw error;
    }
  }

  /** The latest plan, made again if it is old or does not cover the index; only for steps in `work`. */
  *latest(index: number): Steps<CachedPlan> {
    const nowMs = this.#cache.nowMs();
    const known = this.#latest;
    if (known && nowMs - known.atMs < MAX_AGE_MS && known.plan.basedOnIndex >= index) return known;
    const taken = this.#cache.snapshot(nowMs);
    const snapshot = { ...taken, queue: this.withChoices(taken.queue) };
    return this.publish(snapshot, yield* decideInSteps(snapshot));
  }

  /** The latest plan at once; an old one is refreshed for later callers. */
  #known(index: number): CachedPlan | undefined {
    const latest = this.#latest;
    const isNew = latest !== undefined && this.#cache.nowMs() - latest.atMs < MAX_AGE_MS;
    if (isNew && latest.plan.basedOnIndex >= index) return latest;
    if (!this.#isRefreshing) {
      this.#isRefreshing = true;
      void this.refresh(index).finally(() => (this.#isRefreshing = false));
    }
    return latest;
  }
}

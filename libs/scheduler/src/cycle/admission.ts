import { QuotaLedger } from "../cluster/quota-ledger.ts";
import type { Blocker, ProjectState, QueuedJob, SchedulerSettings } from "../model.ts";
import type { ClusterView } from "./cluster-view.ts";

/** Dependencies that a blocker names. */
const MAX_NAMED_JOBS = 16;

/** Enforces quotas and the limit on running jobs, and reports the blockers. */
export class Admission {
  readonly #running: ClusterView["running"];
  readonly #projectOf: (project: string) => ProjectState | undefined;
  readonly #nowMs: number;
  readonly #settings: SchedulerSettings;
  /** Keyed by project; undefined for one without a record. */
  readonly #ledgers = new Map<string, QuotaLedger | undefined>();
  #runningJobs: number;
  /** Jobs that wait without a reservation, as counted for the limit on running jobs. */
  #waitingJobs = 0;

  constructor(
    running: ClusterView["running"],
    projectOf: (project: string) => ProjectState | undefined,
    nowMs: number,
    settings: SchedulerSettings,
  ) {
    this.#running = running;
    this.#projectOf = projectOf;
    this.#nowMs = nowMs;
    this.#settings = settings;
    this.#runningJobs = running.jobs;
  }

  /** The blockers from the job's dependencies, backoff, and position in its project's queue. */
  waiting(job: QueuedJob, queuePosition: number, nowMs: number): Blocker[] {
    const blockers: Blocker[] = [];
    if (job.waitingFor.length > 0) {
      const unmet = job.waitingFor.length;
      const jobs = job.waitingFor.slice(0, MAX_NAMED_JOBS);
      blockers.push({ ...blocker("DependencyWait", "dependencies", unmet, 0, unmet), jobs });
    }
    if (job.notBeforeMs > nowMs) {
      blockers.push(blocker("Backoff", "ms_to_wait", job.notBeforeMs - nowMs, 0, job.notBeforeMs));
    }
    const limit = this.#projectOf(job.project)?.quota.queueLength;
    if (limit !== undefined && queuePosition >= limit && !job.joinsRunning) {
      blockers.push(blocker("QueueFull", "queue_position", queuePosition + 1, 0, limit));
    }
    return blockers;
  }

  /** The current blockers from the quotas and the limit on running jobs. */
  quota(job: QueuedJob): Blocker[] {
    const blockers: Blocker[] = [];
    const { maxConcurrentJobs } = this.#settings;
    if (addsJob(job) && this.#runningJobs >= maxConcurrentJobs) {
      blockers.push(blocker("QuotaExceeded", "concurrent_jobs", 1, 0, maxConcurrentJobs));
    }
    return [...blockers, ...(this.#ledger(job.project)?.blockers(job) ?? [])];
  }

  /** Counts a job that starts, or has a reservation: later jobs leave it the quota. */
  charge(job: QueuedJob): void {
    if (addsJob(job)) this.#runningJobs++;
    this.#ledger(job.project)?.charge(job);
  }

  /**
   * Whether the job can start within quotas and limit beside those that wait without a reservation.
   */
  hasRoomBesideWaiting(job: QueuedJob): boolean {
    const { maxConcurrentJobs } = this.#settings;
    if (addsJob(job) && this.#runningJobs + this.#waitingJobs >= maxConcurrentJobs) return false;
    return this.#ledger(job.project)?.hasRoomBesideWaiting(job) ?? true;
  }

  /** Counts a job that waits without a reservation: later reservations leave it the quota. */
  keepForWaiting(job: QueuedJob): void {
    if (addsJob(job)) this.#waitingJobs++;
    this.#ledger(job.project)?.keepForWaiting(job);
  }

  #ledger(name: string): QuotaLedger | undefined {
    if (this.#ledgers.has(name)) return this.#ledgers.get(name);
    const project = this.#projectOf(name);
    const ledger = project && this.#ledgerOf(project);
    this.#ledgers.set(name, ledger);
    return ledger;
  }

  #ledgerOf({ project, quota, usedGpuHours }: ProjectState): QuotaLedger {
    const { gpuMilli } = this.#running.heldBy(project);
    const running = () => this.#running.ofProject(project);
    return new QuotaLedger(quota, { usedGpuHours, gpuMilli, running }, this.#nowMs, this.#settings);
  }
}

/** Whether it counts as a running job once it has started; replicas of models do not. */
function addsJob({ kind, joinsRunning }: QueuedJob): boolean {
  return kind === "training" && !joinsRunning;
}

/**
 * Whether the job counts against its project's queue length. Only one that could start does, so
 * that no job waits for one that depends on it.
 */
export function takesQueuePlace(job: QueuedJob, nowMs: number): boolean {
  return addsJob(job) && job.waitingFor.length === 0 && job.notBeforeMs <= nowMs;
}

/** A blocker from its fields, in the order of the type. */
export function blocker(
  reason: Blocker["reason"],
  resource: string,
  requested: number,
  free: number,
  limit: number,
): Blocker {
  return { reason, resource, requested, free, limit };
}

import type { Blocker, JobTraits, ProjectQuota, SchedulerSettings } from "../model.ts";
import { holdings } from "./fair-share.ts";
import { runtimeBoundMs } from "./precedence.ts";

const MS_PER_SECOND = 1_000;
const GPU_MILLI_MS_PER_HOUR = 1_000 * 3_600_000;

type Bounds = Pick<SchedulerSettings, "jobTimeoutMs">;

/** The quota-related fields of a job that holds GPUs. */
export type ChargedJob = JobTraits & {
  readonly startedAtMs: number;
  readonly maxRuntimeMs?: number | undefined;
};

/** The use of a project, as its quota counts it. */
export interface QuotaUse {
  /** GPU-hours used in the current window. */
  readonly usedGpuHours: number;
  /** Held by running jobs and replicas. */
  readonly gpuMilli: number;
  /** The jobs that hold them; read only if the quota bounds hours. */
  readonly running: () => Iterable<ChargedJob>;
}

/**
 * One project's quota at one moment. A start is charged its whole bound in GPU-hours, so the quota
 * cannot be exceeded later. Planner and apply share this class, so apply accepts what the planner
 * allows on the same state.
 */
export class QuotaLedger {
  readonly #quota: ProjectQuota;
  readonly #bounds: Bounds;
  #heldGpuMilli: number;
  /** Used so far, plus the remaining bounds of running jobs. */
  #committedGpuHours: number;
  /** The needs of the jobs that wait without a reservation. */
  #waiting = { gpuMilli: 0, gpuHours: 0 };

  constructor(quota: ProjectQuota, use: QuotaUse, nowMs: number, bounds: Bounds) {
    this.#quota = quota;
    this.#bounds = bounds;
    this.#heldGpuMilli = use.gpuMilli;
    this.#committedGpuHours = use.usedGpuHours;
    // Only a quota of hours needs a pass over the jobs.
    if (quota.gpuHours !== undefined) {
      this.#committedGpuHours += remainingGpuHours(use.running(), nowMs, bounds);
    }
  }

  /** The blockers of a start now. */
  blockers(job: JobTraits): Blocker[] {
    const { gpuMilli, gpuHours: hours } = this.#quota;
    const requested = holdings(job).gpuMilli;
    const blockers: Blocker[] = [];
    if (requested === 0) return blockers;
    const reason = "QuotaExceeded" as const;
    if (gpuMilli !== undefined) {
      const free = Math.max(0, gpuMilli - this.#heldGpuMilli);
      const resource = "gpu_milli";
      if (requested > free) blockers.push({ reason, resource, requested, free, limit: gpuMilli });
    }
    if (hours !== undefined) {
      const wanted = gpuHours(requested, chargedMs(job, this.#bounds));
      const free = Math.max(0, hours - this.#committedGpuHours);
      const over = { reason, resource: "gpu_hours", requested: wanted, free, limit: hours };
      if (wanted > free) blockers.push(over);
    }
    return blockers;
  }

  /** Whether the quota suffices for the job beside those that wait without a reservation. */
  hasRoomBesideWaiting(job: JobTraits): boolean {
    const { gpuMilli, gpuHours: hours } = this.#quota;
    const requested = holdings(job).gpuMilli;
    if (requested === 0) return true;
    const milli = this.#heldGpuMilli + this.#waiting.gpuMilli + requested;
    if (gpuMilli !== undefined && milli > gpuMilli) return false;
    if (hours === undefined) return true;
    const wanted = gpuHours(requested, chargedMs(job, this.#bounds));
    return wanted <= hours - this.#committedGpuHours - this.#waiting.gpuHours;
  }

  /** Counts a job that waits without a reservation. */
  keepForWaiting(job: JobTraits): void {
    const { gpuMilli } = holdings(job);
    this.#waiting.gpuMilli += gpuMilli;
    this.#waiting.gpuHours += gpuHours(gpuMilli, chargedMs(job, this.#bounds));
  }

  /** Counts a job that starts. */
  charge(job: JobTraits): void {
    const { gpuMilli } = holdings(job);
    this.#heldGpuMilli += gpuMilli;
    this.#committedGpuHours += gpuHours(gpuMilli, chargedMs(job, this.#bounds));
  }
}

/** A job without an end is charged the job timeout. */
function chargedMs(
  job: JobTraits & { readonly maxRuntimeMs?: number | undefined },
  bounds: Bounds,
): number {
  const boundMs = runtimeBoundMs(job, bounds);
  return Number.isFinite(boundMs) ? boundMs : bounds.jobTimeoutMs;
}

/** An amount of GPU for a duration, in GPU-hours. */
export function gpuHours(gpuMilli: number, durationMs: number): number {
  return (gpuMilli * durationMs) / GPU_MILLI_MS_PER_HOUR;
}

/** The remaining use of the jobs up to their bounds; independent of their order. */
function remainingGpuHours(jobs: Iterable<ChargedJob>, nowMs: number, bounds: Bounds): number {
  // Seconds and the rest are summed apart: each sum is of integers small enough to be exact.
  let milliSeconds = 0;
  let milliRest = 0;
  for (const job of jobs) {
    const { gpuMilli } = holdings(job);
    const leftMs = Math.max(0, Math.ceil(job.startedAtMs + chargedMs(job, bounds) - nowMs));
    milliSeconds += gpuMilli * Math.floor(leftMs / MS_PER_SECOND);
    milliRest += gpuMilli * (leftMs % MS_PER_SECOND);
  }
  return (milliSeconds * MS_PER_SECOND + milliRest) / GPU_MILLI_MS_PER_HOUR;
}

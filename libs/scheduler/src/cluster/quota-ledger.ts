import type { Blocker, JobTraits, ProjectQuota, SchedulerSettings } from "../model.ts";
import { holdings } from "./fair-share.ts";
import { runtimeBoundMs } from "./precedence.ts";

const MS_PER_SECOND = 1_000;
const GPU_MILLI_MS_PER_HOUR = 1_000 * 3_600_000;

type Bounds = Pick<SchedulerSettings, "jobTimeoutMs">;

/** A job that holds GPUs, as far as a quota counts it. */
export type ChargedJob = JobTraits & {
  readonly startedAtMs: number;
  readonly maxRuntimeMs?: number | undefined;
};

/** What a project has used and holds, as its quota counts it. */
export interface QuotaUse {
  /** GPU-hours used up in the present window. */
  readonly usedGpuHours: number;
  /** Held by running jobs and replicas. */
  readonly gpuMilli: number;
  /** The jobs that hold them; looked at only where the quota bounds hours. */
  readonly running: () => Iterable<ChargedJob>;
}

/**
 * One project's quota at one moment. A start is charged its whole bound in GPU-hours, so that the
 * quota cannot be passed later. The planner and apply ask the same: what one would allow on a state,
 * the other does not refuse on it.
 */
export class QuotaLedger {
  readonly #quota: ProjectQuota;
  readonly #bounds: Bounds;
  #heldGpuMilli: number;
  /** Used so far, plus what running jobs may still use up to their bounds. */
  #committedGpuHours: number;
  /** What the jobs need that wait without a promise. */
  #waiting = { gpuMilli: 0, gpuHours: 0 };

  constructor(quota: ProjectQuota, use: QuotaUse, nowMs: number, bounds: Bounds) {
    this.#quota = quota;
    this.#bounds = bounds;
    this.#heldGpuMilli = use.gpuMilli;
    this.#committedGpuHours = use.usedGpuHours;
    // Only a quota of hours is worth a look at every job.
    if (quota.gpuHours !== undefined) {
      this.#committedGpuHours += remainingGpuHours(use.running(), nowMs, bounds);
    }
  }

  /** What the quota holds back of a start now. */
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

  /** Whether the quota is enough for the job besides those that wait without a promise. */
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

  /** Counts a job that waits without a promise. */
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

/** A job without an end is charged as if it ran for the job timeout. */
function chargedMs(
  job: JobTraits & { readonly maxRuntimeMs?: number | undefined },
  bounds: Bounds,
): number {
  const boundMs = runtimeBoundMs(job, bounds);
  return Number.isFinite(boundMs) ? boundMs : bounds.jobTimeoutMs;
}

/** So much of GPU for so long, in GPU-hours. */
export function gpuHours(gpuMilli: number, durationMs: number): number {
  return (gpuMilli * durationMs) / GPU_MILLI_MS_PER_HOUR;
}

/** What the jobs may still use up to their bounds, the same in whatever order they come. */
function remainingGpuHours(jobs: Iterable<ChargedJob>, nowMs: number, bounds: Bounds): number {
  // Seconds and the rest apart: each sum is of whole numbers small enough to be exact.
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

import { holdings } from "./fair-share.ts";
import type {
  Blocker,
  ClusterSnapshot,
  JobTraits,
  ProjectQuota,
  QueuedJob,
  SchedulerSettings,
} from "./model.ts";
import { runtimeBoundMs } from "./precedence.ts";

const MS_PER_HOUR = 3_600_000;

interface ProjectLedger {
  readonly quota: ProjectQuota;
  heldGpuMilli: number;
  /** Used so far, plus what running jobs may still use up to their bounds. */
  committedGpuHours: number;
}

/** Keeps quotas and the number of running jobs, and says what they hold back. */
export class Admission {
  readonly #settings: SchedulerSettings;
  readonly #projects = new Map<string, ProjectLedger>();
  #runningJobs: number;

  constructor(snapshot: ClusterSnapshot, nowMs: number, settings: SchedulerSettings) {
    this.#settings = settings;
    this.#runningJobs = snapshot.running.length;
    for (const { project, quota, usedGpuHours } of snapshot.projects) {
      this.#projects.set(project, { quota, heldGpuMilli: 0, committedGpuHours: usedGpuHours });
    }
    for (const job of snapshot.running) {
      const project = this.#projects.get(job.project);
      if (!project) continue;
      const endMs = job.startedAtMs + chargedMs(job, settings);
      project.heldGpuMilli += holdings(job).gpuMilli;
      project.committedGpuHours += gpuHours(job, Math.max(0, endMs - nowMs));
    }
  }

  /** What the job's dependencies, backoff, and place in its project's queue hold back. */
  waiting(job: QueuedJob, queuePosition: number, nowMs: number): Blocker[] {
    const blockers: Blocker[] = [];
    if (job.waitingFor.length > 0) {
      const unmet = job.waitingFor.length;
      blockers.push(blocker("DependencyWait", "dependencies", unmet, 0, unmet));
    }
    if (job.notBeforeMs > nowMs) {
      blockers.push(blocker("Backoff", "ms_to_wait", job.notBeforeMs - nowMs, 0, job.notBeforeMs));
    }
    const limit = this.#projects.get(job.project)?.quota.queueLength;
    if (limit !== undefined && queuePosition >= limit) {
      blockers.push(blocker("QueueFull", "queue_position", queuePosition + 1, 0, limit));
    }
    return blockers;
  }

  /** What the quotas and the limit on running jobs hold back now. */
  quota(job: QueuedJob): Blocker[] {
    const blockers: Blocker[] = [];
    const { maxConcurrentJobs } = this.#settings;
    if (this.#runningJobs >= maxConcurrentJobs) {
      blockers.push(blocker("QuotaExceeded", "concurrent_jobs", 1, 0, maxConcurrentJobs));
    }
    const project = this.#projects.get(job.project);
    if (!project) return blockers;
    const { gpuMilli, gpuHours: hours } = project.quota;
    const wantedMilli = holdings(job).gpuMilli;
    if (gpuMilli !== undefined && wantedMilli > 0) {
      const free = Math.max(0, gpuMilli - project.heldGpuMilli);
      if (wantedMilli > free) {
        blockers.push(blocker("QuotaExceeded", "gpu_milli", wantedMilli, free, gpuMilli));
      }
    }
    if (hours !== undefined && wantedMilli > 0) {
      const wanted = gpuHours(job, chargedMs(job, this.#settings));
      const free = Math.max(0, hours - project.committedGpuHours);
      if (wanted > free) blockers.push(blocker("QuotaExceeded", "gpu_hours", wanted, free, hours));
    }
    return blockers;
  }

  /** Counts a job that starts. */
  charge(job: QueuedJob): void {
    this.#runningJobs++;
    const project = this.#projects.get(job.project);
    if (!project) return;
    project.heldGpuMilli += holdings(job).gpuMilli;
    project.committedGpuHours += gpuHours(job, chargedMs(job, this.#settings));
  }
}

/** A job without an end is charged as if it ran for the job timeout. */
function chargedMs(job: JobTraits, settings: SchedulerSettings): number {
  const boundMs = runtimeBoundMs(job, settings);
  return Number.isFinite(boundMs) ? boundMs : settings.jobTimeoutMs;
}

function gpuHours(job: JobTraits, durationMs: number): number {
  return (holdings(job).gpuMilli / 1000) * (durationMs / MS_PER_HOUR);
}

/** A blocker from its parts, in the order of the type. */
export function blocker(
  reason: Blocker["reason"],
  resource: string,
  requested: number,
  free: number,
  limit: number,
): Blocker {
  return { reason, resource, requested, free, limit };
}

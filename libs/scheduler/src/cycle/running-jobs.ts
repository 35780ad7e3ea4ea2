import { holdings, NOTHING, type ShareVector } from "../cluster/fair-share.ts";
import { runtimeBoundMs } from "../cluster/precedence.ts";
import type { RunningJob, SchedulerSettings } from "../model.ts";
import { TargetCounts } from "../placement/targets.ts";
import { entryKey, type PlanEntry } from "../plan-entry.ts";

/** The running jobs, with sums that are updated with every change. */
export class RunningJobs {
  readonly #jobs = new Map<string, RunningJob>();
  readonly #byProject = new Map<string, Map<string, RunningJob>>();
  #training = 0;
  readonly #held = new Map<string, ShareVector>();
  /** The number of jobs being preempted, keyed by the entry that gets their room. */
  readonly #leavingFor = new Map<string, number>();
  readonly targets = new TargetCounts();
  /** A lower limit of the first bound, which may be that of an ended job. */
  #nextBound: { readonly jobTimeoutMs: number; readonly atMs: number } | undefined;

  /** The number of running jobs, without replicas of deployed models. */
  get jobs(): number {
    return this.#training;
  }

  values(): Iterable<RunningJob> {
    return this.#jobs.values();
  }

  get(id: string): RunningJob | undefined {
    return this.#jobs.get(id);
  }

  ofProject(project: string): Iterable<RunningJob> {
    return this.#byProject.get(project)?.values() ?? [];
  }

  /** What the project's jobs hold together. */
  heldBy(project: string): ShareVector {
    return this.#held.get(project) ?? NOTHING;
  }

  leavingFor(entry: PlanEntry): number {
    return this.#leavingFor.get(entryKey(entry)) ?? 0;
  }

  /** Jobs past their bound that are not leaving. */
  pastBound(nowMs: number, settings: Pick<SchedulerSettings, "jobTimeoutMs">): RunningJob[] {
    const { jobTimeoutMs } = settings;
    if (this.#nextBound?.jobTimeoutMs === jobTimeoutMs && nowMs < this.#nextBound.atMs) return [];
    const past: RunningJob[] = [];
    let atMs = Number.POSITIVE_INFINITY;
    for (const job of this.#jobs.values()) {
      const boundMs = boundOf(job, settings);
      if (boundMs <= nowMs) past.push(job);
      atMs = Math.min(atMs, boundMs);
    }
    this.#nextBound = { jobTimeoutMs, atMs };
    return past;
  }

  /** A time before which no job reaches its bound; infinite if none has one. */
  nextBoundMs(settings: Pick<SchedulerSettings, "jobTimeoutMs">): number {
    this.pastBound(Number.NEGATIVE_INFINITY, settings);
    return this.#nextBound!.atMs;
  }

  /** Adds a job and returns the replaced one with its id, if any. */
  put(job: RunningJob): RunningJob | undefined {
    const before = this.remove(job.id);
    this.#jobs.set(job.id, job);
    const own = this.#byProject.get(job.project) ?? new Map<string, RunningJob>();
    this.#byProject.set(job.project, own.set(job.id, job));
    this.#count(job, 1);
    if (this.#nextBound) {
      const atMs = Math.min(this.#nextBound.atMs, boundOf(job, this.#nextBound));
      this.#nextBound = { ...this.#nextBound, atMs };
    }
    return before;
  }

  remove(id: string): RunningJob | undefined {
    const job = this.#jobs.get(id);
    if (!job) return undefined;
    this.#jobs.delete(id);
    const own = this.#byProject.get(job.project);
    own?.delete(id);
    if (own?.size === 0) this.#byProject.delete(job.project);
    this.#count(job, -1);
    return job;
  }

  #count(job: RunningJob, sign: 1 | -1): void {
    if (job.kind === "training") this.#training += sign;
    const more = holdings(job);
    const held = this.heldBy(job.project);
    this.#held.set(job.project, {
      gpuMilli: held.gpuMilli + sign * more.gpuMilli,
      cpuMilli: held.cpuMilli + sign * more.cpuMilli,
      memoryMib: held.memoryMib + sign * more.memoryMib,
    });
    if (!this.#byProject.has(job.project)) this.#held.delete(job.project);
    this.targets.add(job.request, sign * job.tasks);
    const entry = job.evicting?.forEntry;
    if (!entry) return;
    const leaving = this.leavingFor(entry) + sign;
    if (leaving > 0) this.#leavingFor.set(entryKey(entry), leaving);
    else this.#leavingFor.delete(entryKey(entry));
  }
}

/** The runtime bound of the job; one that is leaving has none. */
function boundOf(job: RunningJob, settings: Pick<SchedulerSettings, "jobTimeoutMs">): number {
  return job.evicting ? Number.POSITIVE_INFINITY : job.startedAtMs + runtimeBoundMs(job, settings);
}

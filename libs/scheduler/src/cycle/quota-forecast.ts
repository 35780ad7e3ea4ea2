import type { Steps } from "@heddle/base/async/steps";
import { holdings } from "../cluster/fair-share.ts";
import { byAge } from "../cluster/precedence.ts";
import { gpuHours, QuotaLedger } from "../cluster/quota-ledger.ts";
import type { QueuedJob } from "../model.ts";
import { entryKey, isSameEntry } from "../plan-entry.ts";
import { takesQueuePlace } from "./admission.ts";
import type { Holder } from "./other-starts.ts";
import type { SchedulingSnapshot } from "./scheduling-cycle.ts";

/** A holder, or a job with a reservation, and its assumed end. */
export interface ExpectedEnd extends Holder {
  readonly endsMs: number;
}

/**
 * The first time at which a project's quota and the limit on running jobs admit the job, or
 * undefined. Holders end as assumed and nothing else starts; more is free later, which allows a
 * binary search.
 */
export function* quotaAvailableMs(
  snapshot: SchedulingSnapshot,
  job: QueuedJob,
  endings: readonly ExpectedEnd[],
): Steps<number | undefined> {
  const { nowMs, settings } = snapshot;
  const windowEndsMs = snapshot.projectOf(job.project)?.windowEndsMs ?? Number.POSITIVE_INFINITY;
  const times = [...new Set([nowMs, windowEndsMs, ...endings.map(({ endsMs }) => endsMs)])]
    .filter((atMs) => Number.isFinite(atMs) && atMs >= nowMs)
    .sort((a, b) => a - b);
  const own = endings.filter((ending) => ending.job.project === job.project);
  const allows = (atMs: number): boolean => {
    const training = endings.filter(({ job: other, endsMs }) => {
      return other.kind === "training" && endsMs > atMs;
    });
    const isBound = job.kind === "training" && !job.joinsRunning;
    if (isBound && training.length >= settings.maxConcurrentJobs) return false;
    return quotaAt(snapshot, job, own, atMs).length === 0;
  };
  yield;
  if (!allows(times.at(-1)!)) return undefined;
  let low = 0;
  let high = times.length - 1;
  while (low < high) {
    yield;
    const middle = (low + high) >> 1;
    if (allows(times[middle]!)) high = middle;
    else low = middle + 1;
  }
  return times[low];
}

/** The quota's blockers at the time, including the holders' use until then. */
function quotaAt(
  snapshot: SchedulingSnapshot,
  job: QueuedJob,
  own: readonly ExpectedEnd[],
  atMs: number,
) {
  const project = snapshot.projectOf(job.project);
  if (!project) return [];
  const { windowEndsMs = Number.POSITIVE_INFINITY } = project;
  const sinceMs = atMs < windowEndsMs ? snapshot.nowMs : windowEndsMs;
  let usedGpuHours = atMs < windowEndsMs ? project.usedGpuHours : 0;
  for (const { job: other, endsMs } of own) {
    const heldMs = Math.max(0, Math.min(endsMs, atMs) - Math.max(sinceMs, other.startedAtMs));
    usedGpuHours += gpuHours(holdings(other).gpuMilli, heldMs);
  }
  // A reservation that starts later is charged its whole bound.
  const stay = own
    .filter(({ endsMs }) => endsMs > atMs)
    .map(({ job: other }) => ({ ...other, startedAtMs: Math.min(other.startedAtMs, atMs) }));
  const gpuMilli = stay.reduce((sum, other) => sum + holdings(other).gpuMilli, 0);
  const use = { usedGpuHours, gpuMilli, running: () => stay };
  return new QuotaLedger(project.quota, use, atMs, snapshot.settings).blockers(job);
}

/**
 * The older jobs of the project that the plan does not start. The number says how many of them must
 * start before the project's queue length admits the job.
 */
export function aheadInQueue(
  { queue, nowMs, projectOf }: SchedulingSnapshot,
  job: QueuedJob,
  begun: ReadonlySet<string>,
): { readonly ahead: readonly QueuedJob[]; readonly mustStart: number } {
  const limit = projectOf(job.project)?.quota.queueLength;
  if (limit === undefined || job.joinsRunning) return { ahead: [], mustStart: 0 };
  const ahead = queue.filter((other) => {
    if (other.project !== job.project || isSameEntry(other.entry, job.entry)) return false;
    if (begun.has(entryKey(other.entry))) return false;
    return byAge(other, job) < 0 && takesQueuePlace(other, nowMs);
  });
  return { ahead, mustStart: Math.max(0, ahead.length - limit + 1) };
}

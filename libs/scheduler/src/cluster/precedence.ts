import type { JobTraits, QosLevel, QueuedJob, SchedulerSettings } from "../model.ts";
import { entryKey } from "../plan-entry.ts";
import type { FairShare } from "./fair-share.ts";

const MAX_PRIORITY = 1_000;
const QOS_RANK: Readonly<Record<QosLevel, number>> = { guaranteed: 2, standard: 1, best_effort: 0 };

/**
 * A job's level: qos first, then serving over training, then priority. A job preempts only jobs of
 * a strictly lower level, so preemption cannot be circular.
 */
export function levelOf({ project, qosLevel, kind, priority }: JobTraits): number {
  if (Math.abs(priority) > MAX_PRIORITY) {
    throw new RangeError(
      `a job of the project ${project} has priority ${priority}, outside +-${MAX_PRIORITY}`,
    );
  }
  const kindRank = kind === "serving" ? 1 : 0;
  return (2 * QOS_RANK[qosLevel] + kindRank) * (2 * MAX_PRIORITY + 1) + priority;
}

/** The maximum runtime of the job; infinite for serving without a bound of its own. */
export function runtimeBoundMs(
  job: JobTraits & { readonly maxRuntimeMs?: number | undefined },
  settings: Pick<SchedulerSettings, "jobTimeoutMs">,
): number {
  if (job.kind === "serving") return job.maxRuntimeMs ?? Number.POSITIVE_INFINITY;
  return Math.min(job.maxRuntimeMs ?? settings.jobTimeoutMs, settings.jobTimeoutMs);
}

/**
 * The order in which jobs are tried. Shares change as jobs start, so it is computed step by step.
 *
 * - Higher levels are first.
 * - Within a level ranked jobs are first, by rank.
 * - Then comes the project with the least fair share, and within it the oldest job.
 */
export function* inFairOrder(
  jobs: readonly QueuedJob[],
  fairShare: FairShare,
): Generator<QueuedJob, void> {
  const levels = Map.groupBy(jobs, levelOf);
  for (const level of [...levels.keys()].sort((a, b) => b - a)) {
    const byProject = Map.groupBy(
      [...levels.get(level)!].sort(byRankAndAge),
      ({ project }) => project,
    );
    const lanes = [...byProject.values()].map((lane) => ({ lane, next: 0 }));
    while (lanes.length > 0) {
      const first = lanes.reduce((best, lane) => (goesFirst(lane, best, fairShare) ? lane : best));
      yield first.lane[first.next++]!;
      if (first.next === first.lane.length) lanes.splice(lanes.indexOf(first), 1);
    }
  }
}

interface Lane {
  readonly lane: readonly QueuedJob[];
  next: number;
}

function goesFirst(a: Lane, b: Lane, fairShare: FairShare): boolean {
  const jobA = a.lane[a.next]!;
  const jobB = b.lane[b.next]!;
  const byRank = byReservationRank(jobA, jobB);
  if (byRank !== 0) return byRank < 0;
  const shares = fairShare.share(jobA.project) - fairShare.share(jobB.project);
  if (shares !== 0) return shares < 0;
  return byAge(jobA, jobB) < 0;
}

function byRankAndAge(a: QueuedJob, b: QueuedJob): number {
  return byReservationRank(a, b) || byAge(a, b);
}

/**
 * Jobs without a rank are last; a reservation without one is of an earlier version, which made only
 * one.
 */
function byReservationRank(a: QueuedJob, b: QueuedJob): number {
  return (
    ascending(a.reservationRank, b.reservationRank) ||
    ascending(a.reservedStartMs, b.reservedStartMs)
  );
}

function ascending(a = Number.POSITIVE_INFINITY, b = Number.POSITIVE_INFINITY): number {
  return a === b ? 0 : a - b;
}

/** The older first. */
export function byAge(a: QueuedJob, b: QueuedJob): number {
  return a.submittedAtMs - b.submittedAtMs || (entryKey(a.entry) < entryKey(b.entry) ? -1 : 1);
}

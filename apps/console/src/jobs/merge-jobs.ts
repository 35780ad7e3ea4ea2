import type { ClusterEvent } from "@heddle/contracts/api/events";
import type { JobSummary } from "@heddle/contracts/api/job-replies";

/**
 * The rows of a list: those that were read, in their order, after those that are new. Rows keep
 * their places, and the latest reading or event gives their states.
 */
export function mergeJobs(
  newest: readonly JobSummary[],
  read: readonly JobSummary[],
  events: readonly ClusterEvent[],
): JobSummary[] {
  const fresh = new Map(newest.map((job) => [job.id, job]));
  const known = new Set(read.map(({ id }) => id));
  const states = latestStates(events);
  const rows = [
    ...newest.filter(({ id }) => !known.has(id)),
    ...read.map((job) => fresh.get(job.id) ?? job),
  ];
  return rows.map((job) => {
    const event = states.get(job.id);
    // The reading may be later than the event.
    if (!event || event.at <= job.since) return job;
    const { state, phase, attempt, at } = event;
    return { ...job, state, phase, attempt, since: at };
  });
}

type JobEventOf = Extract<ClusterEvent, { type: "job" }>;

/** Keyed by job, its latest event; the given ones are the newest first. */
function latestStates(events: readonly ClusterEvent[]): Map<string, JobEventOf> {
  const latest = new Map<string, JobEventOf>();
  for (const event of events) {
    if (event.type === "job" && !latest.has(event.job_id)) latest.set(event.job_id, event);
  }
  return latest;
}

/** Whether jobs between the newest page and the read ones are unknown: too many are new. */
export function hasGap(newest: readonly JobSummary[], read: readonly JobSummary[]): boolean {
  if (newest.length === 0 || read.length === 0) return false;
  const known = new Set(read.map(({ id }) => id));
  return !newest.some(({ id }) => known.has(id));
}

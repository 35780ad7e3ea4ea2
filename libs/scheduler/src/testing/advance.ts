import type { SchedulingInput } from "../cycle/scheduling-cycle.ts";
import type { GangStart, Plan, QueuedJob, RunningJob } from "../model.ts";
import { entryKey, isSameEntry } from "../plan-entry.ts";
import { HOUR_MS } from "./scenarios.ts";

/** Applies a plan as the cluster would and advances the clock: the loop around `schedule`. */
export function advance(input: SchedulingInput, plan: Plan, toMs: number): SchedulingInput {
  const starts = new Map(plan.starts.map((start) => [entryKey(start.entry), start]));
  const leaving = new Map(plan.preemptions.map((eviction) => [eviction.victimId, eviction]));
  const byMs = input.nowMs + input.settings.preemptionGraceMs;
  const running = input.snapshot.running.map((job) => {
    const eviction = leaving.get(job.id);
    return eviction ? { ...job, evicting: { forEntry: eviction.forEntry, byMs } } : job;
  });
  const promised = new Map(
    plan.reservations.map(({ entry, startAtMs }) => [entryKey(entry), startAtMs]),
  );
  const queue = input.queue
    .filter(({ entry }) => !starts.has(entryKey(entry)))
    .map((job) => {
      const rank = plan.ranked.findIndex((entry) => isSameEntry(entry, job.entry));
      return {
        ...job,
        reservedStartMs: promised.get(entryKey(job.entry)),
        reservationRank: rank < 0 ? undefined : rank,
      };
    });
  for (const job of input.queue) {
    const start = starts.get(entryKey(job.entry));
    if (start) running.push(started(job, start, input.nowMs));
  }
  const gone = running.filter((job) => job.evicting !== undefined && job.evicting.byMs <= toMs);
  const stays = running.filter((job) => !gone.includes(job) && endMs(job) > toMs);
  return {
    ...input,
    nowMs: toMs,
    snapshot: { ...input.snapshot, index: input.snapshot.index + 1, running: stays },
    queue: [...queue, ...gone.map((job) => requeued(job))],
  };
}

/** The natural end of the job. */
export function endMs({ startedAtMs, maxRuntimeMs }: RunningJob): number {
  return startedAtMs + (maxRuntimeMs ?? Number.POSITIVE_INFINITY);
}

/**
 * The next time at which something changes without a new plan; an hour from now if nothing does.
 */
export function nextChangeMs({ snapshot, nowMs, settings }: SchedulingInput, plan: Plan): number {
  const ends = [
    ...snapshot.running.map((job) => job.evicting?.byMs ?? endMs(job)),
    ...plan.starts.map(({ endsByMs }) => endsByMs ?? Number.POSITIVE_INFINITY),
    ...plan.preemptions.map(() => nowMs + settings.preemptionGraceMs),
  ];
  const next = Math.min(...ends.filter((end) => end > nowMs));
  return Number.isFinite(next) ? next : nowMs + HOUR_MS;
}

/** Jobs of these tests hold no cluster-wide resources. */
function started(queued: QueuedJob, { placements }: GangStart, nowMs: number): RunningJob {
  const { shared: _, entry, ...job } = queued;
  return { ...job, id: entryKey(entry), placements, startedAtMs: nowMs, checkpointedAtMs: nowMs };
}

/** A preempted job returns to the queue with its own traits and age. */
function requeued(job: RunningJob): QueuedJob {
  const { placements: _, startedAtMs, checkpointedAtMs: __, evicting: ___, ...rest } = job;
  const { shared: ____, id, ...traits } = rest;
  return {
    entry: { kind: "job", jobId: id },
    ...traits,
    submittedAtMs: startedAtMs,
    waitingFor: [],
    notBeforeMs: 0,
    sameRack: false,
  };
}

import type { Steps } from "@heddle/base/async/steps";
import { locate } from "../cluster/ledger.ts";
import { levelOf, runtimeBoundMs } from "../cluster/precedence.ts";
import type { OtherStarts } from "../cycle/other-starts.ts";
import { aheadInQueue, type ExpectedEnd, quotaAvailableMs } from "../cycle/quota-forecast.ts";
import { earliestStartMs, type Release, takeAll } from "../cycle/releases.ts";
import { gangOf, type SchedulingCycle } from "../cycle/scheduling-cycle.ts";
import type { Plan, QueuedJob } from "../model.ts";
import { type GangRequest, gangFits } from "../placement/gang.ts";
import { entryKey, isSameEntry } from "../plan-entry.ts";
import { QueuePlayback } from "../reservation/queue-playback.ts";

/** Jobs ahead that the late estimate simulates; with more of them it is undefined. */
const MAX_AHEAD = 64;

/** When a job may start, in ms since the epoch; an absent time cannot be estimated. */
export interface StartEstimate {
  /** If running jobs end by their progress, and jobs with earlier reservations at once. */
  readonly earliestMs?: number | undefined;
  /** If running jobs and jobs with earlier reservations run to their bounds. */
  readonly likelyMs?: number | undefined;
  /** If, besides, every job ahead starts first and runs to its bound. */
  readonly latestMs?: number | undefined;
}

/** The job, and the cluster at its turn. */
interface EstimateTarget {
  readonly job: QueuedJob;
  readonly gang: GangRequest;
  readonly others: OtherStarts;
}

/** A reservation that was made before the job's turn. */
interface EarlierReservation {
  readonly holder: QueuedJob;
  readonly release: Release;
  readonly startMs: number;
  readonly gang: GangRequest;
}

/**
 * The estimated start of the job, by nodes, shared amounts, quotas, queue length, the limit on jobs
 * and earlier reservations. A job that does not start now never gets the current time.
 */
export function* startEstimate(
  cycle: SchedulingCycle,
  plan: Plan,
  target: EstimateTarget,
): Steps<StartEstimate> {
  const { job, others } = target;
  const { nowMs } = cycle.snapshot;
  if (plan.starts.some(({ entry }) => isSameEntry(entry, job.entry))) {
    return { earliestMs: nowMs, likelyMs: nowMs, latestMs: nowMs };
  }
  if (job.waitingFor.length > 0) return {};
  const holders = [...others.running, ...others.started];
  const bounded = holders.map((each) => ({ ...each, endsMs: each.release.atMs }));
  const hopeful = holders.map((each) => ({ ...each, endsMs: each.expectedEndMs }));
  yield;
  const earlier = yield* earlierReservations(cycle, plan, job);
  const own = plan.reservations.find(({ entry }) => isSameEntry(entry, job.entry))?.startAtMs;
  const likelyMs = own ?? (yield* soonestMs(cycle, target, bounded, earlier));
  const gone: EarlierReservation[] = [];
  for (const each of earlier) gone.push(yield* endedAtStart(target, hopeful, each));
  const earliestMs = least(yield* soonestMs(cycle, target, hopeful, gone), likelyMs);
  if (own !== undefined) return { earliestMs, likelyMs, latestMs: own };
  const afterMs = yield* afterThoseAhead(cycle, target, bounded);
  return { earliestMs, likelyMs, latestMs: latestOf([likelyMs, afterMs]) };
}

function* earlierReservations(
  { snapshot, view }: SchedulingCycle,
  plan: Plan,
  job: QueuedJob,
): Steps<EarlierReservation[]> {
  const pending = plan.pending.find(({ entry }) => isSameEntry(entry, job.entry));
  const earlier: EarlierReservation[] = [];
  for (const reservation of plan.reservations.slice(0, pending?.reservationsAhead ?? 0)) {
    const holder = snapshot.queue.find(({ entry }) => isSameEntry(entry, reservation.entry));
    if (!holder) continue;
    yield;
    const gang = yield* gangOf(snapshot, holder);
    const { shape } = gang;
    const { shared, startAtMs: startMs } = reservation;
    const tasks = [...locate(reservation.placements, view.roster)];
    const atMs = startMs + runtimeBoundMs(holder, snapshot.settings);
    earlier.push({ holder, gang, startMs, release: { atMs, shape, tasks, shared } });
  }
  return earlier;
}

/** The reservation in the early estimate: its job starts as soon as it can and ends at once. */
function* endedAtStart(
  { others }: EstimateTarget,
  hopeful: readonly ExpectedEnd[],
  earlier: EarlierReservation,
): Steps<EarlierReservation> {
  const fitsMs = yield* earliestStartMs(others.ledger, releasesOf(hopeful), earlier.gang);
  const startMs = Math.min(earlier.startMs, fitsMs ?? earlier.startMs);
  return { ...earlier, startMs, release: { ...earlier.release, atMs: startMs } };
}

function releasesOf(endings: readonly ExpectedEnd[]): Release[] {
  return endings.map(({ release, endsMs }) => ({ ...release, atMs: endsMs }));
}

function* soonestMs(
  cycle: SchedulingCycle,
  target: EstimateTarget,
  endings: readonly ExpectedEnd[],
  earlier: readonly EarlierReservation[],
): Steps<number | undefined> {
  const { job } = target;
  const { nowMs } = cycle.snapshot;
  const reserved = earlier.map(({ holder, startMs, release }) => {
    const endsMs = release.atMs;
    return { job: { ...holder, startedAtMs: startMs }, release, expectedEndMs: endsMs, endsMs };
  });
  return latestOf([
    Math.max(nowMs, job.notBeforeMs),
    yield* roomMs(cycle, target, endings, earlier),
    yield* quotaAvailableMs(cycle.snapshot, job, [...endings, ...reserved]),
    yield* queueAllowsMs(cycle, target, endings),
  ]);
}

/**
 * The first time with room beside the reservations that start before this job ends. A later start
 * has more such reservations.
 */
function* roomMs(
  { snapshot }: SchedulingCycle,
  { job, gang, others }: EstimateTarget,
  endings: readonly ExpectedEnd[],
  earlier: readonly EarlierReservation[],
): Steps<number | undefined> {
  const { nowMs, settings } = snapshot;
  const runtimeMs = runtimeBoundMs(job, settings);
  const releases = releasesOf(endings);
  let binding: readonly EarlierReservation[] = [];
  for (;;) {
    yield;
    const beside = others.ledger.clone();
    for (const { release } of binding) takeAll(beside, release);
    const given = [...releases, ...binding.map(({ release }) => release)];
    const atMs = gangFits(beside, gang) ? nowMs : yield* earliestStartMs(beside, given, gang);
    if (atMs === undefined) return undefined;
    const all = earlier.filter(({ startMs }) => startMs < atMs + runtimeMs);
    if (all.length <= binding.length) return atMs;
    binding = all;
  }
}

/** When enough of the earlier jobs in its project's queue can have started. */
function* queueAllowsMs(
  cycle: SchedulingCycle,
  { job, others }: EstimateTarget,
  endings: readonly ExpectedEnd[],
): Steps<number | undefined> {
  const { snapshot, placer } = cycle;
  const begun = new Set(others.started.map(({ job: other }) => entryKey(other.entry)));
  const { ahead, mustStart } = aheadInQueue(snapshot, job, begun);
  if (mustStart === 0) return snapshot.nowMs;
  if (ahead.length > MAX_AHEAD) return undefined;
  const playback = new QueuePlayback(placer.on(others.ledger), releasesOf(endings), snapshot.nowMs);
  const starts: number[] = [];
  for (const other of ahead) {
    yield;
    const gang = yield* gangOf(snapshot, other);
    const roomFromMs = yield* playback.start(gang, runtimeBoundMs(other, snapshot.settings));
    const quotaFromMs = yield* quotaAvailableMs(snapshot, other, endings);
    const startMs = latestOf([roomFromMs, quotaFromMs]);
    if (startMs !== undefined) starts.push(startMs);
  }
  return starts.sort((a, b) => a - b)[mustStart - 1];
}

/** The latest of all; undefined if one of them is. */
function latestOf(times: readonly (number | undefined)[]): number | undefined {
  const known = times.filter((atMs) => atMs !== undefined);
  return known.length === times.length ? Math.max(...known) : undefined;
}

function least(a: number | undefined, b: number | undefined): number | undefined {
  if (a === undefined || b === undefined) return a ?? b;
  return Math.min(a, b);
}

/** The start of the job if each job ahead runs to its bound in turn. */
function* afterThoseAhead(
  { snapshot, placer }: SchedulingCycle,
  { job, gang, others }: EstimateTarget,
  bounded: readonly ExpectedEnd[],
): Steps<number | undefined> {
  const { queue, nowMs, settings } = snapshot;
  const begun = new Set(others.started.map(({ job: other }) => entryKey(other.entry)));
  const ahead = queue.filter(
    (other) => !begun.has(entryKey(other.entry)) && goesBefore(other, job),
  );
  if (ahead.length > MAX_AHEAD) return undefined;
  ahead.sort((a, b) => levelOf(b) - levelOf(a) || a.submittedAtMs - b.submittedAtMs);
  const playback = new QueuePlayback(placer.on(others.ledger), releasesOf(bounded), nowMs);
  for (const other of ahead) {
    yield;
    const before = yield* gangOf(snapshot, other);
    yield* playback.start(before, runtimeBoundMs(other, settings));
  }
  return yield* playback.start(gang, runtimeBoundMs(job, settings));
}

function goesBefore(other: QueuedJob, job: QueuedJob): boolean {
  if (isSameEntry(other.entry, job.entry) || other.waitingFor.length > 0) return false;
  const levels = levelOf(other) - levelOf(job);
  return levels > 0 || (levels === 0 && other.submittedAtMs <= job.submittedAtMs);
}

import { locate } from "../cluster/ledger.ts";
import { levelOf, runtimeBoundMs } from "../cluster/precedence.ts";
import type { OtherStarts } from "../cycle/other-starts.ts";
import { aheadInQueue, type ExpectedEnd, quotaAllowsMs } from "../cycle/quota-forecast.ts";
import { earliestStartMs, type Release, takeAll } from "../cycle/releases.ts";
import { gangOf, type SchedulingCycle } from "../cycle/scheduling-cycle.ts";
import type { Plan, QueuedJob } from "../model.ts";
import { type GangRequest, gangFits } from "../placement/gang.ts";
import { QueuePlayback } from "../reservation/queue-playback.ts";

/** Jobs ahead that the late estimate plays through; with more ahead the late end is open. */
const MAX_AHEAD = 64;

/** When a job may start, in ms since the epoch; an end is absent where it cannot be told. */
export interface StartEstimate {
  /** If running jobs end when their progress says, and jobs promised before it at once. */
  readonly earliestMs?: number | undefined;
  /** If running jobs and jobs promised before it stay to their bounds. */
  readonly likelyMs?: number | undefined;
  /** If besides that every job ahead goes first and stays to its bound. */
  readonly latestMs?: number | undefined;
}

/** The job, and the cluster as it finds it. */
interface Asked {
  readonly job: QueuedJob;
  readonly gang: GangRequest;
  readonly others: OtherStarts;
}

/** What a job before it was promised. */
interface Promised {
  readonly holder: QueuedJob;
  readonly release: Release;
  readonly startMs: number;
  readonly gang: GangRequest;
}

/**
 * When the job may start. It takes nodes, what belongs to no node, quotas, the queue's length, the
 * limit on jobs and the promises to jobs before it: what does not start now is never told "now" for
 * want of one of them.
 */
export function startEstimate(round: SchedulingCycle, plan: Plan, asked: Asked): StartEstimate {
  const { job, others } = asked;
  const { nowMs } = round.standing;
  if (plan.starts.some(({ jobId }) => jobId === job.id)) {
    return { earliestMs: nowMs, likelyMs: nowMs, latestMs: nowMs };
  }
  if (job.waitingFor.length > 0) return {};
  const holders = [...others.running, ...others.started];
  const bounded = holders.map((each) => ({ ...each, endsMs: each.release.atMs }));
  const hopeful = holders.map((each) => ({ ...each, endsMs: each.expectedEndMs }));
  const before = promisesBefore(round, plan, job);
  const own = plan.reservations.find(({ jobId }) => jobId === job.id)?.startAtMs;
  const likelyMs = own ?? soonestMs(round, asked, bounded, before);
  const gone = before.map((promised) => goneAsSoonAsStarted(asked, hopeful, promised));
  const earliestMs = least(soonestMs(round, asked, hopeful, gone), likelyMs);
  if (own !== undefined) return { earliestMs, likelyMs, latestMs: own };
  const afterMs = afterThoseAhead(round, asked, bounded);
  return { earliestMs, likelyMs, latestMs: latestOf([likelyMs, afterMs]) };
}

/** The promises that were made before the job's turn. */
function promisesBefore(
  { standing, layout }: SchedulingCycle,
  plan: Plan,
  job: QueuedJob,
): Promised[] {
  const pending = plan.pending.find(({ jobId }) => jobId === job.id);
  return plan.reservations.slice(0, pending?.promisesAhead ?? 0).flatMap((reservation) => {
    const holder = standing.queue.find(({ id }) => id === reservation.jobId);
    if (!holder) return [];
    const gang = gangOf(standing, holder);
    const { shape } = gang;
    const { shared } = reservation;
    const tasks = [...locate(reservation.placements, layout.roster)];
    const startMs = reservation.startAtMs;
    const atMs = startMs + runtimeBoundMs(holder, standing.settings);
    return { holder, gang, startMs, release: { atMs, shape, tasks, shared } };
  });
}

/** A promised job as the hopeful estimate has it: it starts as soon as it can, and is gone then. */
function goneAsSoonAsStarted(
  { others }: Asked,
  hopeful: readonly ExpectedEnd[],
  promised: Promised,
): Promised {
  const fitsMs = earliestStartMs(others.ledger, releasesOf(hopeful), promised.gang);
  const startMs = Math.min(promised.startMs, fitsMs ?? promised.startMs);
  return { ...promised, startMs, release: { ...promised.release, atMs: startMs } };
}

function releasesOf(endings: readonly ExpectedEnd[]): Release[] {
  return endings.map(({ release, endsMs }) => ({ ...release, atMs: endsMs }));
}

function soonestMs(
  round: SchedulingCycle,
  asked: Asked,
  endings: readonly ExpectedEnd[],
  before: readonly Promised[],
): number | undefined {
  const { job } = asked;
  const { nowMs } = round.standing;
  const promised = before.map(({ holder, startMs, release }) => {
    const endsMs = release.atMs;
    return { job: { ...holder, startedAtMs: startMs }, release, expectedEndMs: endsMs, endsMs };
  });
  return latestOf([
    Math.max(nowMs, job.notBeforeMs),
    roomMs(round, asked, endings, before),
    quotaAllowsMs(round.standing, job, [...endings, ...promised]),
    queueAllowsMs(round, asked, endings),
  ]);
}

/**
 * When there is room: anywhere, but beside the promises to jobs that start before this one ends. The
 * later it starts, the more of them bind it.
 */
function roomMs(
  { standing }: SchedulingCycle,
  { job, gang, others }: Asked,
  endings: readonly ExpectedEnd[],
  before: readonly Promised[],
): number | undefined {
  const { nowMs, settings } = standing;
  const runtimeMs = runtimeBoundMs(job, settings);
  const releases = releasesOf(endings);
  let binding: readonly Promised[] = [];
  for (;;) {
    const beside = others.ledger.clone();
    for (const { release } of binding) takeAll(beside, release);
    const given = [...releases, ...binding.map(({ release }) => release)];
    const atMs = gangFits(beside, gang) ? nowMs : earliestStartMs(beside, given, gang);
    if (atMs === undefined) return undefined;
    const all = before.filter(({ startMs }) => startMs < atMs + runtimeMs);
    if (all.length <= binding.length) return atMs;
    binding = all;
  }
}

/** When enough of those before it in its project's queue can have started. */
function queueAllowsMs(
  round: SchedulingCycle,
  { job, others }: Asked,
  endings: readonly ExpectedEnd[],
): number | undefined {
  const { standing, placer } = round;
  const begun = new Set(others.started.map(({ job: other }) => other.id));
  const { ahead, mustStart } = aheadInQueue(standing, job, begun);
  if (mustStart === 0) return standing.nowMs;
  if (ahead.length > MAX_AHEAD) return undefined;
  const playback = new QueuePlayback(placer.on(others.ledger), releasesOf(endings), standing.nowMs);
  const starts = ahead.map((other) => {
    const boundMs = runtimeBoundMs(other, standing.settings);
    const roomFromMs = playback.start(gangOf(standing, other), boundMs);
    return latestOf([roomFromMs, quotaAllowsMs(standing, other, endings)]);
  });
  const told = starts.filter((atMs) => atMs !== undefined).sort((a, b) => a - b);
  return told[mustStart - 1];
}

/** The latest of all; undefined where one of them is. */
function latestOf(times: readonly (number | undefined)[]): number | undefined {
  const told = times.filter((atMs) => atMs !== undefined);
  return told.length === times.length ? Math.max(...told) : undefined;
}

function least(a: number | undefined, b: number | undefined): number | undefined {
  if (a === undefined || b === undefined) return a ?? b;
  return Math.min(a, b);
}

/** Each job ahead in turn, to its bound, then this one. */
function afterThoseAhead(
  { standing, placer }: SchedulingCycle,
  { job, gang, others }: Asked,
  bounded: readonly ExpectedEnd[],
): number | undefined {
  const { queue, nowMs, settings } = standing;
  const begun = new Set(others.started.map(({ job: other }) => other.id));
  const ahead = queue.filter((other) => !begun.has(other.id) && goesBefore(other, job));
  if (ahead.length > MAX_AHEAD) return undefined;
  ahead.sort((a, b) => levelOf(b) - levelOf(a) || a.submittedAtMs - b.submittedAtMs);
  const playback = new QueuePlayback(placer.on(others.ledger), releasesOf(bounded), nowMs);
  for (const other of ahead)
    playback.start(gangOf(standing, other), runtimeBoundMs(other, settings));
  return playback.start(gang, runtimeBoundMs(job, settings));
}

function goesBefore(other: QueuedJob, job: QueuedJob): boolean {
  if (other.id === job.id || other.waitingFor.length > 0) return false;
  const levels = levelOf(other) - levelOf(job);
  return levels > 0 || (levels === 0 && other.submittedAtMs <= job.submittedAtMs);
}

import { rejectedNodes } from "./capacity-blockers.ts";
import type { NodeFilter } from "./eligibility.ts";
import { type GangRequest, gangFits, tasksThatFit } from "./gang.ts";
import type { Ledger } from "./ledger.ts";
import type { Blocker, Plan, QueuedJob } from "./model.ts";
import { levelOf, runtimeBoundMs } from "./precedence.ts";
import { QueuePlayback } from "./queue-playback.ts";
import { earliestStartMs, type Release } from "./releases.ts";
import { gangOf, openRound, type Round, type Standing } from "./round.ts";

/** Jobs ahead that the late estimate plays through; with more ahead the late end is open. */
const MAX_AHEAD = 64;

/** When a job may start, in ms since the epoch; an end is absent where it cannot be told. */
export interface StartEstimate {
  /** If running jobs end when their progress says and nobody else takes what they free. */
  readonly earliestMs?: number | undefined;
  /** If running jobs stay to their bounds: the promise where the job holds one. */
  readonly likelyMs?: number | undefined;
  /** If besides that every job ahead goes first and stays to its bound. */
  readonly latestMs?: number | undefined;
}

/** Everything that the API tells about a job that has not started. */
export interface Explanation {
  readonly jobId: string;
  /** Empty only for a job that the plan starts. */
  readonly blockers: readonly Blocker[];
  readonly nodes: number;
  /** Nodes rejected by each static filter; a node counts at the first that rejects it. */
  readonly rejectedByFilter: Readonly<Partial<Record<NodeFilter, number>>>;
  /** Nodes that pass the filters and have too little free for one task. */
  readonly rejectedByCapacity: number;
  /** Tasks of the gang that would fit now. */
  readonly tasksThatFit: number;
  readonly start: StartEstimate;
}

/**
 * Explains one queued job under the latest plan, made on this standing or not long before. Pure, and
 * leaves the layout as it was.
 */
export function explain(standing: Standing, plan: Plan, job: QueuedJob): Explanation {
  const round = openRound(standing);
  const gang = gangOf(round.standing, job);
  const start = startEstimate(round, plan, job, gang);
  const ledger = withOtherStarts(round, plan, job);
  const eligible = [...ledger.nodes.keys()].filter((node) => gang.shape.eligible[node] === 1);
  return {
    jobId: job.id,
    blockers: plan.pending.find(({ jobId }) => jobId === job.id)?.blockers ?? [],
    nodes: ledger.nodes.length,
    rejectedByFilter: Object.fromEntries(rejectedNodes(ledger.nodes, gang)),
    rejectedByCapacity: eligible.filter((node) => !ledger.fits(node, gang.shape)).length,
    tasksThatFit: tasksThatFit(ledger, gang),
    start,
  };
}

/** Tells of variants of a queued job whether they fit on what the plan leaves free for it. */
export function gangFitter(
  standing: Standing,
  plan: Plan,
  job: QueuedJob,
): (variant: QueuedJob) => boolean {
  const round = openRound(standing);
  const ledger = withOtherStarts(round, plan, job);
  return (variant) => gangFits(ledger, gangOf(round.standing, variant));
}

/** The free capacity as this job finds it: a started job is explained without itself. */
function withOtherStarts({ layout, standing }: Round, plan: Plan, { id }: QueuedJob): Ledger {
  const ledger = layout.free.clone();
  const jobs = new Map(standing.queue.map((job) => [job.id, job]));
  for (const { jobId, placements } of plan.starts) {
    const job = jobs.get(jobId);
    // One that waits no more holds its places already, where the plan is older than the standing.
    if (jobId === id || !job) continue;
    const shape = layout.shapes.of(job.request);
    for (const { nodeId, devices } of placements) {
      ledger.take(layout.positions.get(nodeId)!, shape, devices);
    }
    ledger.takeShared(job.shared);
  }
  return ledger;
}

function startEstimate(round: Round, plan: Plan, job: QueuedJob, gang: GangRequest): StartEstimate {
  const { nowMs } = round.standing;
  if (plan.starts.some(({ jobId }) => jobId === job.id)) {
    return { earliestMs: nowMs, likelyMs: nowMs, latestMs: nowMs };
  }
  if (job.waitingFor.length > 0) return {};
  const waitMs = Math.max(nowMs, job.notBeforeMs);
  const bounded = round.releases.values();
  const hopeful = [...round.layout.running.values()].map((running) => {
    const release = round.releases.get(running.id)!;
    const atMs = Math.max(nowMs, Math.min(release.atMs, running.expectedEndMs ?? release.atMs));
    return { ...release, atMs };
  });
  const promisedMs = plan.reservation?.jobId === job.id ? plan.reservation.startAtMs : undefined;
  const soonest = (releases: readonly Release[]): number | undefined => {
    if (gangFits(round.placer.ledger, gang)) return waitMs;
    const startMs = earliestStartMs(round.placer.ledger, releases, gang);
    return startMs === undefined ? undefined : Math.max(waitMs, startMs);
  };
  const likelyMs = promisedMs ?? soonest(bounded);
  const earliestMs = least(soonest(hopeful), likelyMs);
  return { earliestMs, likelyMs, latestMs: promisedMs ?? afterThoseAhead(round, job, waitMs) };
}

function least(a: number | undefined, b: number | undefined): number | undefined {
  if (a === undefined || b === undefined) return a ?? b;
  return Math.min(a, b);
}

/** Each job ahead in turn, to its bound, then this one. */
function afterThoseAhead(round: Round, job: QueuedJob, waitMs: number): number | undefined {
  const { queue, nowMs, settings } = round.standing;
  const ahead = queue.filter((other) => goesBefore(other, job));
  if (ahead.length > MAX_AHEAD) return undefined;
  ahead.sort((a, b) => levelOf(b) - levelOf(a) || a.submittedAtMs - b.submittedAtMs);
  const playback = new QueuePlayback(round.placer, round.releases.values(), nowMs);
  for (const other of ahead)
    playback.start(gangOf(round.standing, other), runtimeBoundMs(other, settings));
  const startMs = playback.start(gangOf(round.standing, job), runtimeBoundMs(job, settings));
  return startMs === undefined ? undefined : Math.max(waitMs, startMs);
}

function goesBefore(other: QueuedJob, job: QueuedJob): boolean {
  if (other.id === job.id || other.waitingFor.length > 0) return false;
  const levels = levelOf(other) - levelOf(job);
  return levels > 0 || (levels === 0 && other.submittedAtMs <= job.submittedAtMs);
}

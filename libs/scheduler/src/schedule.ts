import { blocker, takesQueuePlace } from "./admission.ts";
import { capacityBlockers } from "./capacity-blockers.ts";
import { type GangRequest, namePlacements, type PlacedGang } from "./gang.ts";
import type { Blocker, GangStart, PendingJob, Plan, Preemption, QueuedJob } from "./model.ts";
import { byAge, inFairOrder, runtimeBoundMs } from "./precedence.ts";
import { chooseVictims, lostGpuSeconds, mayPreempt, type Victim } from "./preemption.ts";
import { earliestStartMs, type Release, releaseAll } from "./releases.ts";
import { PromisedStart } from "./reservation.ts";
import {
  gangOf,
  layOut,
  openRound,
  type Round,
  type SchedulingInput,
  type Standing,
} from "./round.ts";

/**
 * Decides what starts, who leaves and what is promised. Pure: the same standing gives the same plan,
 * and the layout is left as it was.
 *
 * 1. Lay out the snapshot: what is free, what each project holds, the expected workload.
 * 2. Find running jobs past their bound.
 * 3. Set aside queued jobs that wait for something other than capacity.
 * 4. Take the others in fair order; start each gang whose quota and capacity are there.
 * 5. Promise the first that does not fit its earliest start, by evicting others if that is sooner;
 *    later jobs start only where the promise holds.
 * 6. Say of every job that stays what blocks it.
 */
export function decide(standing: Standing): Plan {
  const round = openRound(standing);
  const expired = expiredJobs(standing);
  const { eligible, waiting } = setAside(round);
  const outcome = startInOrder(round, eligible);
  const pending = [...waiting, ...explainBlocked(round, outcome)];
  giveBack(round, outcome);
  return {
    basedOnIndex: standing.index,
    starts: outcome.starts,
    preemptions: outcome.preemptions,
    reservation: outcome.promise?.reservation,
    expired,
    pending,
  };
}

/** The same on plain data, which is laid out first. */
export function schedule(input: SchedulingInput): Plan {
  return decide(layOut(input));
}

/** Leaves the layout as it was found: whether the plan holds is for apply to say. */
function giveBack({ placer, releases }: Round, { starts }: Outcome): void {
  for (const { jobId } of starts) {
    releaseAll(placer.ledger, releases.started.get(jobId)!);
  }
}

/** How far one pass over the queue got; it is written only by `startInOrder`. */
interface Outcome {
  readonly starts: GangStart[];
  readonly preemptions: Preemption[];
  readonly blocked: BlockedJob[];
  promise: PromisedStart | undefined;
}

interface BlockedJob {
  readonly job: QueuedJob;
  /** What quota holds back; empty where only capacity does. */
  readonly quota: readonly Blocker[];
  /** How many jobs stand ahead and wait for capacity too. */
  readonly ahead: number;
}

function expiredJobs({ layout, nowMs, settings }: Standing): string[] {
  return layout.running
    .pastBound(nowMs, settings)
    .map(({ id }) => id)
    .sort();
}

function setAside({ standing, admission }: Round): {
  eligible: QueuedJob[];
  waiting: PendingJob[];
} {
  const eligible: QueuedJob[] = [];
  const waiting: PendingJob[] = [];
  const queued = new Map<string, number>();
  for (const job of [...standing.queue].sort(byAge)) {
    const position = queued.get(job.project) ?? 0;
    if (takesQueuePlace(job, standing.nowMs)) queued.set(job.project, position + 1);
    const blockers = admission.waiting(job, position, standing.nowMs);
    if (blockers.length === 0) eligible.push(job);
    else waiting.push({ jobId: job.id, blockers });
  }
  return { eligible, waiting };
}

function startInOrder(round: Round, jobs: readonly QueuedJob[]): Outcome {
  const outcome: Outcome = { starts: [], preemptions: [], blocked: [], promise: undefined };
  let ahead = 0;
  for (const job of inFairOrder(jobs, round.fairShare)) {
    const quota = round.admission.quota(job);
    if (quota.length > 0) {
      outcome.blocked.push({ job, quota, ahead });
      continue;
    }
    const gang = gangOf(round.standing, job);
    const endsByMs = round.standing.nowMs + runtimeBoundMs(job, round.standing.settings);
    const placed = outcome.promise
      ? outcome.promise.backfill(gang, endsByMs)
      : round.placer.place(gang);
    if (placed) {
      start(round, outcome, job, gang, placed, endsByMs, ahead > 0);
      continue;
    }
    outcome.blocked.push({ job, quota, ahead });
    ahead++;
    if (!outcome.promise) promiseStart(round, outcome, job, gang);
  }
  return outcome;
}

function start(
  round: Round,
  outcome: Outcome,
  job: QueuedJob,
  gang: GangRequest,
  placed: PlacedGang,
  endsByMs: number,
  backfilled: boolean,
): void {
  round.fairShare.charge(job);
  round.admission.charge(job);
  round.releases.set(job.id, { atMs: endsByMs, shape: gang.shape, ...placed });
  outcome.starts.push({
    jobId: job.id,
    placements: namePlacements(round.layout.roster.slots, placed.tasks),
    backfilled,
    endsByMs: Number.isFinite(endsByMs) ? endsByMs : undefined,
  });
}

/** Gives the head job the earlier of waiting for others to end and evicting some. */
function promiseStart(round: Round, outcome: Outcome, job: QueuedJob, gang: GangRequest): void {
  const { placer, releases } = round;
  const waitUntilMs = earliestStartMs(placer.ledger, releases.values(), gang);
  const evictedByMs = round.standing.nowMs + round.standing.settings.preemptionGraceMs;
  if (waitUntilMs === undefined || evictedByMs < waitUntilMs) {
    const victims = chooseVictims(placer.ledger, gang, evictable(round, job));
    if (victims) {
      for (const victim of victims) {
        releases.set(victim.job.id, { ...victim.release, atMs: evictedByMs });
        outcome.preemptions.push(preemption(victim, job));
      }
      const due = releases.values();
      outcome.promise = PromisedStart.make(job.id, gang, evictedByMs, placer, due);
      return;
    }
  }
  if (waitUntilMs === undefined) return;
  const due = releases.values();
  outcome.promise = PromisedStart.make(job.id, gang, waitUntilMs, placer, due);
}

function evictable({ standing, layout, releases }: Round, preemptor: QueuedJob): Victim[] {
  return [...layout.running.values()]
    .filter((job) => mayPreempt(preemptor, job))
    .map((job) => ({
      job,
      release: releases.get(job.id) as Release,
      lostGpuSeconds: lostGpuSeconds(job, standing.nowMs),
    }));
}

function preemption({ job, lostGpuSeconds: lost }: Victim, preemptor: QueuedJob): Preemption {
  return { victimId: job.id, forJobId: preemptor.id, lostGpuSeconds: lost };
}

/** Blockers of every job that stays; jobs alike in what they ask share one look at the cluster. */
function explainBlocked(round: Round, outcome: Outcome): PendingJob[] {
  const known = new Map<string, readonly Blocker[]>();
  return outcome.blocked.map(({ job, quota, ahead }) => {
    const gang = gangOf(round.standing, job);
    const key = `${gang.shape.id} ${gang.tasks} ${gang.sameRack} ${JSON.stringify(gang.shared)}`;
    let capacity = known.get(key);
    if (!capacity) {
      capacity = capacityBlockers(round.placer.ledger, round.layout.capacity, gang);
      known.set(key, capacity);
    }
    const blockers = [...quota, ...capacity, ...orderBlockers(round, outcome, job, ahead)];
    if (blockers.length === 0) blockers.push(blocker("PriorityBehind", "jobs_ahead", 1, 0, ahead));
    return { jobId: job.id, blockers };
  });
}

/** What other jobs' claims hold back: those ahead, and the evictions made for this one. */
function orderBlockers(
  { layout }: Round,
  outcome: Outcome,
  job: QueuedJob,
  ahead: number,
): Blocker[] {
  const blockers: Blocker[] = [];
  if (ahead > 0) blockers.push(blocker("PriorityBehind", "jobs_ahead", 1, 0, ahead));
  const leaving =
    outcome.preemptions.filter(({ forJobId }) => forJobId === job.id).length +
    layout.running.leavingFor(job.id);
  if (leaving > 0) {
    blockers.push(blocker("PreemptionInProgress", "jobs_checkpointing", leaving, 0, leaving));
  }
  return blockers;
}

import { runToEnd, type Steps } from "@heddle/base/async/steps";
import { byAge, inFairOrder, runtimeBoundMs } from "./cluster/precedence.ts";
import { takesQueuePlace } from "./cycle/admission.ts";
import { type BlockedJob, pendingJobs } from "./cycle/pending-jobs.ts";
import { releaseAll } from "./cycle/releases.ts";
import {
  gangOf,
  openCycle,
  type SchedulingCycle,
  type SchedulingInput,
  type SchedulingSnapshot,
  snapshotFrom,
} from "./cycle/scheduling-cycle.ts";
import type { GangStart, PendingJob, Plan, QueuedJob } from "./model.ts";
import { type GangRequest, namePlacements, type PlacedGang } from "./placement/gang.ts";
import { entryKey } from "./plan-entry.ts";
import { ReservationPlanner } from "./reservation/reservation-planner.ts";

/** Queued jobs that one step processes. */
const JOBS_PER_STEP = 1_024;

/** Plans on plain data. */
export function schedule(input: SchedulingInput): Plan {
  return decide(snapshotFrom(input));
}

/** One scheduling cycle: equal snapshots give equal plans, and the view is left unchanged. */
export function decide(snapshot: SchedulingSnapshot): Plan {
  return runToEnd(decideInSteps(snapshot));
}

/**
 * One scheduling cycle in steps; the view must not change between two of them. A caller that stops
 * early must call `return`.
 */
export function* decideInSteps(snapshot: SchedulingSnapshot): Steps<Plan> {
  // 1. Open the cycle: free capacity, fair shares, quotas and the releases of running jobs.
  const cycle = openCycle(snapshot);
  const outcome: Outcome = { starts: [], blocked: [], planner: new ReservationPlanner(cycle) };
  // 2. List the running jobs past their bound.
  const expired = expiredJobs(snapshot);
  yield;
  // 3. Nominate the queued jobs that wait for nothing but quota and capacity.
  const { nominated, inadmissible } = yield* nominate(cycle);
  try {
    // 4. Start the jobs that fit, in fair order, and 5. reserve a start for each that does not.
    yield* startInOrder(cycle, nominated, outcome);
    const { reservations, preemptions, ranked } = outcome.planner;
    const reservationsAhead = reservations.size;
    // 6. Find the blockers of every job that stays pending.
    const blocked = yield* pendingJobs(cycle, outcome.blocked, preemptions);
    return {
      basedOnIndex: snapshot.index,
      starts: outcome.starts,
      preemptions,
      reservations: reservations.reservations,
      ranked,
      expired,
      pending: [...inadmissible.map((job) => ({ ...job, reservationsAhead })), ...blocked],
    };
  } finally {
    // 7. Release the started jobs' resources: apply decides whether the plan holds.
    releaseStarts(cycle, outcome.starts);
  }
}

function releaseStarts({ placer, releases }: SchedulingCycle, starts: readonly GangStart[]): void {
  for (const { entry } of starts) {
    releaseAll(placer.ledger, releases.started.get(entryKey(entry))!);
  }
}

/** The progress of one cycle; only `startInOrder` writes it. */
interface Outcome {
  readonly starts: GangStart[];
  readonly blocked: BlockedJob[];
  readonly planner: ReservationPlanner;
}

function expiredJobs({ view, nowMs, settings }: SchedulingSnapshot): string[] {
  return view.running
    .pastBound(nowMs, settings)
    .map(({ id }) => id)
    .sort();
}

interface Nomination {
  readonly nominated: readonly QueuedJob[];
  /** Not nominated because of a dependency, a backoff or the queue length of their project. */
  readonly inadmissible: readonly Omit<PendingJob, "reservationsAhead">[];
}

function* nominate({ snapshot, admission }: SchedulingCycle): Steps<Nomination> {
  const nominated: QueuedJob[] = [];
  const inadmissible: Omit<PendingJob, "reservationsAhead">[] = [];
  const queued = new Map<string, number>();
  for (const [at, job] of [...snapshot.queue].sort(byAge).entries()) {
    if (at % JOBS_PER_STEP === JOBS_PER_STEP - 1) yield;
    const position = queued.get(job.project) ?? 0;
    if (takesQueuePlace(job, snapshot.nowMs)) queued.set(job.project, position + 1);
    const blockers = admission.waiting(job, position, snapshot.nowMs);
    if (blockers.length === 0) nominated.push(job);
    else inadmissible.push({ entry: job.entry, blockers });
  }
  return { nominated, inadmissible };
}

function* startInOrder(
  cycle: SchedulingCycle,
  jobs: readonly QueuedJob[],
  { starts, blocked, planner }: Outcome,
): Steps<void> {
  const { snapshot, admission, fairShare } = cycle;
  const { reservations } = planner;
  let ahead = 0;
  for (const job of inFairOrder(jobs, fairShare)) {
    yield;
    const quota = admission.quota(job);
    if (quota.length > 0) {
      blocked.push({ job, quota, ahead, reservationsAhead: reservations.size });
      continue;
    }
    const gang = yield* gangOf(snapshot, job);
    const endsByMs = snapshot.nowMs + runtimeBoundMs(job, snapshot.settings);
    const placed = yield* reservations.place(gang, endsByMs);
    if (placed) {
      starts.push(start(cycle, job, gang, placed, endsByMs, ahead > 0));
      continue;
    }
    blocked.push({ job, quota, ahead, reservationsAhead: reservations.size });
    ahead++;
    yield* planner.add(job, gang);
  }
}

function start(
  cycle: SchedulingCycle,
  job: QueuedJob,
  gang: GangRequest,
  placed: PlacedGang,
  endsByMs: number,
  backfilled: boolean,
): GangStart {
  cycle.fairShare.charge(job);
  cycle.admission.charge(job);
  cycle.releases.set(entryKey(job.entry), { atMs: endsByMs, shape: gang.shape, ...placed });
  return {
    entry: job.entry,
    placements: namePlacements(cycle.view.roster.slots, placed.tasks),
    backfilled,
    endsByMs: Number.isFinite(endsByMs) ? endsByMs : undefined,
  };
}

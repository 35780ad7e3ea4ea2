import { byAge, inFairOrder, runtimeBoundMs } from "./cluster/precedence.ts";
import { blocker, takesQueuePlace } from "./cycle/admission.ts";
import { capacityBlockers } from "./cycle/capacity-blockers.ts";
import { releaseAll } from "./cycle/releases.ts";
import {
  gangOf,
  layOut,
  openCycle,
  type SchedulingCycle,
  type SchedulingInput,
  type SchedulingSnapshot,
} from "./cycle/scheduling-cycle.ts";
import type { Blocker, GangStart, PendingJob, Plan, QueuedJob } from "./model.ts";
import { type GangRequest, gangKey, namePlacements, type PlacedGang } from "./placement/gang.ts";
import { ReservationPlanner } from "./reservation/reservation-planner.ts";

/**
 * Decides what starts, who leaves and what is promised. Pure: the same standing gives the same plan,
 * and the layout is left as it was.
 *
 * 1. Lay out the snapshot: what is free, what each project holds, the expected workload.
 * 2. Find running jobs past their bound.
 * 3. Set aside queued jobs that wait for something other than capacity.
 * 4. Take the others in fair order; start each gang whose quota and capacity are there.
 * 5. Promise those that do not fit their earliest start, by evicting others if that is sooner: the
 *    first anywhere, each further one on nodes that no job before it may use; later jobs start only
 *    where the promises hold.
 * 6. Say of every job that stays what blocks it.
 */
export function decide(standing: SchedulingSnapshot): Plan {
  return inOneTurn(decideInSteps(standing));
}

/** Runs steps to their end at once. */
function inOneTurn<T>(steps: Generator<void, T>): T {
  for (;;) {
    const { done, value } = steps.next();
    if (done) return value;
  }
}

/**
 * The same job by job. Between two steps other work may be done, but for what reads or changes the
 * layout. Steps that are given up must be told so by `return`.
 */
export function* decideInSteps(standing: SchedulingSnapshot): Generator<void, Plan> {
  const round = openCycle(standing);
  const expired = expiredJobs(standing);
  const { eligible, waiting } = setAside(round);
  yield;
  const outcome: Outcome = { starts: [], blocked: [], line: new ReservationPlanner(round) };
  try {
    yield* startInOrder(round, eligible, outcome);
    const { promises, preemptions, line } = outcome.line;
    const blocked = yield* explainBlocked(round, outcome);
    const pending = [
      ...waiting.map((job) => ({ ...job, promisesAhead: promises.size })),
      ...blocked,
    ];
    return {
      basedOnIndex: standing.index,
      starts: outcome.starts,
      preemptions,
      reservations: promises.reservations,
      line,
      expired,
      pending,
    };
  } finally {
    giveBack(round, outcome);
  }
}

/** The same on plain data, which is laid out first. */
export function schedule(input: SchedulingInput): Plan {
  return decide(layOut(input));
}

/** Leaves the layout as it was found: whether the plan holds is for apply to say. */
function giveBack({ placer, releases }: SchedulingCycle, { starts }: Outcome): void {
  for (const { jobId } of starts) {
    releaseAll(placer.ledger, releases.started.get(jobId)!);
  }
}

/** How far one pass over the queue got; it is written only by `startInOrder`. */
interface Outcome {
  readonly starts: GangStart[];
  readonly blocked: BlockedJob[];
  readonly line: ReservationPlanner;
}

interface BlockedJob {
  readonly job: QueuedJob;
  /** What quota holds back; empty where only capacity does. */
  readonly quota: readonly Blocker[];
  /** How many jobs stand ahead and wait for capacity too. */
  readonly ahead: number;
  readonly promisesAhead: number;
}

function expiredJobs({ layout, nowMs, settings }: SchedulingSnapshot): string[] {
  return layout.running
    .pastBound(nowMs, settings)
    .map(({ id }) => id)
    .sort();
}

function setAside({ standing, admission }: SchedulingCycle): {
  eligible: QueuedJob[];
  waiting: Omit<PendingJob, "promisesAhead">[];
} {
  const eligible: QueuedJob[] = [];
  const waiting: Omit<PendingJob, "promisesAhead">[] = [];
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

function* startInOrder(
  round: SchedulingCycle,
  jobs: readonly QueuedJob[],
  outcome: Outcome,
): Generator<void, void> {
  const { line } = outcome;
  const { promises } = line;
  let ahead = 0;
  for (const job of inFairOrder(jobs, round.fairShare)) {
    yield;
    const quota = round.admission.quota(job);
    if (quota.length > 0) {
      outcome.blocked.push({ job, quota, ahead, promisesAhead: promises.size });
      continue;
    }
    const gang = gangOf(round.standing, job);
    const endsByMs = round.standing.nowMs + runtimeBoundMs(job, round.standing.settings);
    const placed = promises.place(gang, endsByMs);
    if (placed) {
      start(round, outcome, job, gang, placed, endsByMs, ahead > 0);
      continue;
    }
    outcome.blocked.push({ job, quota, ahead, promisesAhead: promises.size });
    ahead++;
    // To look for places and to promise some may each take long for a gang of thousands.
    yield;
    line.add(job, gang);
  }
}

function start(
  round: SchedulingCycle,
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

/** Blockers of every job that stays; jobs alike in what they ask share one look at the cluster. */
function* explainBlocked(round: SchedulingCycle, outcome: Outcome): Generator<void, PendingJob[]> {
  const known = new Map<string, readonly Blocker[]>();
  const before = new WantedBefore(round.layout.roster.slots.length);
  const pending: PendingJob[] = [];
  for (const { job, quota, ahead, promisesAhead } of outcome.blocked) {
    yield;
    const gang = gangOf(round.standing, job);
    const key = gangKey(gang);
    let capacity = known.get(key);
    if (!capacity) {
      capacity = capacityBlockers(round.placer.ledger, round.layout.capacity, gang);
      known.set(key, capacity);
    }
    const inItsWay = before.meets(gang) ? ahead : 0;
    if (quota.length === 0) before.add(gang);
    const blockers = [...quota, ...capacity, ...orderBlockers(round, outcome, job, inItsWay)];
    if (blockers.length === 0) blockers.push(blocker("PriorityBehind", "jobs_ahead", 1, 0, ahead));
    pending.push({ jobId: job.id, blockers, promisesAhead });
  }
  return pending;
}

/** What the jobs before one that wait for capacity may use. */
class WantedBefore {
  readonly #nodes: Uint8Array;
  readonly #shared = { storage: false, shards: false };
  /** Lists of eligible nodes that are in it. */
  readonly #added = new Set<Uint8Array>();

  constructor(nodes: number) {
    this.#nodes = new Uint8Array(nodes);
  }

  add({ shape: { eligible }, shared }: GangRequest): void {
    if (shared && shared.storageMb > 0) this.#shared.storage = true;
    if (shared && shared.shards > 0) this.#shared.shards = true;
    if (this.#added.has(eligible)) return;
    this.#added.add(eligible);
    for (let node = 0; node < this.#nodes.length; node++) this.#nodes[node]! |= eligible[node]!;
  }

  /** Whether one of them may use something that this one may use. */
  meets({ shape: { eligible }, shared }: GangRequest): boolean {
    const { storage, shards } = this.#shared;
    if (shared && ((storage && shared.storageMb > 0) || (shards && shared.shards > 0))) return true;
    return this.#nodes.some((wanted, node) => wanted === 1 && eligible[node] === 1);
  }
}

/** What other jobs' claims hold back: those ahead, and the evictions made for this one. */
function orderBlockers(
  { layout }: SchedulingCycle,
  { line }: Outcome,
  job: QueuedJob,
  ahead: number,
): Blocker[] {
  const blockers: Blocker[] = [];
  if (ahead > 0) blockers.push(blocker("PriorityBehind", "jobs_ahead", 1, 0, ahead));
  const leaving =
    line.preemptions.filter(({ forJobId }) => forJobId === job.id).length +
    layout.running.leavingFor(job.id);
  if (leaving > 0) {
    blockers.push(blocker("PreemptionInProgress", "jobs_checkpointing", leaving, 0, leaving));
  }
  return blockers;
}

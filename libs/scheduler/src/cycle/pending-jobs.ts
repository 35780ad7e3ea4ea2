import type { Steps } from "@heddle/base/async/steps";
import type { Blocker, PendingJob, Preemption, QueuedJob } from "../model.ts";
import { type GangRequest, gangKey } from "../placement/gang.ts";
import { isSameEntry } from "../plan-entry.ts";
import { blocker } from "./admission.ts";
import { capacityBlockers } from "./capacity-blockers.ts";
import { gangOf, type SchedulingCycle } from "./scheduling-cycle.ts";

/** A nominated job that the cycle does not start. */
export interface BlockedJob {
  readonly job: QueuedJob;
  /** The blockers of its quota; empty if only capacity is missing. */
  readonly quota: readonly Blocker[];
  /** Jobs before it that wait for capacity too. */
  readonly ahead: number;
  readonly reservationsAhead: number;
}

/** The blockers of every blocked job; jobs with equal requests share one evaluation. */
export function* pendingJobs(
  cycle: SchedulingCycle,
  blocked: readonly BlockedJob[],
  preemptions: readonly Preemption[],
): Steps<PendingJob[]> {
  const { placer, view, snapshot } = cycle;
  const known = new Map<string, readonly Blocker[]>();
  const contended = new ContendedResources(view.roster.slots.length);
  const pending: PendingJob[] = [];
  for (const { job, quota, ahead, reservationsAhead } of blocked) {
    yield;
    const gang = yield* gangOf(snapshot, job);
    const key = gangKey(gang);
    let capacity = known.get(key);
    if (!capacity) {
      capacity = yield* capacityBlockers(placer.ledger, view.capacity, gang);
      known.set(key, capacity);
    }
    const inItsWay = contended.overlap(gang) ? ahead : 0;
    if (quota.length === 0) contended.add(gang);
    const order = orderBlockers(cycle, preemptions, job, inItsWay);
    const blockers = [...quota, ...capacity, ...order];
    if (blockers.length === 0) blockers.push(blocker("PriorityBehind", "jobs_ahead", 1, 0, ahead));
    pending.push({ entry: job.entry, blockers, reservationsAhead });
  }
  return pending;
}

/** What earlier jobs that wait for capacity may use. */
class ContendedResources {
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

  /** Whether the gang may use some of it. */
  overlap({ shape: { eligible }, shared }: GangRequest): boolean {
    const { storage, shards } = this.#shared;
    if (shared && ((storage && shared.storageMb > 0) || (shards && shared.shards > 0))) return true;
    return this.#nodes.some((wanted, node) => wanted === 1 && eligible[node] === 1);
  }
}

/** Blockers from other jobs: those before it, and the victims that leave for it. */
function orderBlockers(
  { view }: SchedulingCycle,
  preemptions: readonly Preemption[],
  job: QueuedJob,
  ahead: number,
): Blocker[] {
  const blockers: Blocker[] = [];
  if (ahead > 0) blockers.push(blocker("PriorityBehind", "jobs_ahead", 1, 0, ahead));
  const leaving =
    preemptions.filter(({ forEntry }) => isSameEntry(forEntry, job.entry)).length +
    view.running.leavingFor(job.entry);
  if (leaving > 0) {
    blockers.push(blocker("PreemptionInProgress", "jobs_checkpointing", leaving, 0, leaving));
  }
  return blockers;
}

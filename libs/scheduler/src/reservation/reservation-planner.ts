import { levelOf } from "../cluster/precedence.ts";
import { allFit, wantsTheSame } from "../cluster/shared-amounts.ts";
import { chooseVictims, lostGpuSeconds, mayPreempt, type Victim } from "../cycle/preemption.ts";
import { earliestStartMs, type Release, releaseAll, releaseUntil } from "../cycle/releases.ts";
import type { SchedulingCycle } from "../cycle/scheduling-cycle.ts";
import type { Preemption, QueuedJob, SharedRequest } from "../model.ts";
import { type GangRequest, gangFits, gangKey, usableNodes } from "../placement/gang.ts";
import { BackfillReservations } from "./backfill-reservations.ts";

/** Promises at a time; each costs a look at what holds its nodes. */
const MAX_PROMISES = 16;
/** Jobs that keep their places in the queue: those with a promise, and those that one passes over. */
const MAX_LINE = 64;
/** Jobs for which a promise beyond the first is sought in one decision. */
const MAX_SEARCHES = 64;

/** What a waiting job may use, and what of that no job before it may. */
interface CandidateNodes {
  readonly usable: Uint8Array;
  /** 1 by position. */
  readonly own: Uint8Array;
  /** Nobody before it may use anything of what it may use. */
  readonly isWhole: boolean;
  /** Somebody before it wants of the same that belongs to no node. */
  readonly isContested: boolean;
}

/** A job that waits since those before it may use all, or the best part, of what it may use. */
interface Waiting {
  readonly id: string;
  readonly gang: GangRequest;
}

/**
 * Gives promises to the jobs that wait, in the order of the queue: the first its earliest start, by
 * waiting or by evicting, whichever is sooner; each further one the same on the nodes that no job
 * before it may use. So one that waits for its nodes keeps nobody from others, nothing that is
 * promised or made free by an eviction is of use to a job before, and no two promises meet.
 *
 * Whoever waits without a promise keeps those behind it off its nodes too, so that nobody evicts
 * there before its turn, and leaves no quota to their promises that it needs; but for a job that
 * nothing can give a start, which stands in nobody's way.
 */
export class ReservationPlanner {
  readonly promises: BackfillReservations;
  readonly preemptions: Preemption[] = [];
  /** Jobs that are to keep their places in the queue, in order. */
  readonly line: string[] = [];
  readonly #round: SchedulingCycle;
  /** 1 by position for each node that a job before may use. */
  #taken: Uint8Array;
  /** What jobs before want that belongs to no node. */
  readonly #wanted: SharedRequest[] = [];
  /** By what is asked: why it got no promise since the last one was made. */
  readonly #refused = new Map<string, "behind" | "hopeless">();
  /** Of the present level: those that a promise to one behind them would pass over. */
  #waiting: Waiting[] = [];
  #level = Number.NaN;
  #searches = 0;

  constructor(round: SchedulingCycle) {
    this.#round = round;
    this.promises = new BackfillReservations(round.placer);
    this.#taken = new Uint8Array(round.layout.roster.slots.length);
  }

  /** The job's turn has come, quotas let it start, and there is no room for it. */
  add(job: QueuedJob, gang: GangRequest): void {
    if (this.promises.size >= MAX_PROMISES || this.#searches > MAX_SEARCHES) return;
    const { admission } = this.#round;
    // As one that its quota holds back, it stands in nobody's way.
    if (!admission.hasRoomBesideWaiting(job)) return;
    this.#enterLevel(levelOf(job));
    const key = gangKey(gang);
    const refused = this.#refused.get(key) ?? this.#seek(job, gang);
    if (!refused) return;
    this.#refused.set(key, refused);
    if (refused === "hopeless") return;
    this.#waiting.push({ id: job.id, gang });
    admission.keepForWaiting(job);
  }

  #enterLevel(level: number): void {
    if (level === this.#level) return;
    this.#level = level;
    this.#waiting = [];
  }

  /** Promises the job its start, or says why not. */
  #seek(job: QueuedJob, gang: GangRequest): "behind" | "hopeless" | undefined {
    if (this.promises.size > 0 && !this.#hasOpenNode(gang)) return "behind";
    const ground = this.#groundOf(gang);
    if (!ground.own.includes(1)) return ground.usable.includes(1) ? "behind" : "hopeless";
    if (this.promises.size > 0) this.#searches++;
    const passed = this.#passedOver(gang, ground);
    const hasPlace = this.line.length + passed.length < MAX_LINE;
    const isPromised = hasPlace && this.#promise(job, gang, ground);
    if (!isPromised && hasPlace && (ground.isWhole || !this.#fitsOneDay(job, gang))) {
      return "hopeless";
    }
    for (let node = 0; node < ground.usable.length; node++) {
      if (ground.usable[node] === 1) this.#taken[node] = 1;
    }
    if (gang.shared) this.#wanted.push(gang.shared);
    if (!isPromised) return "behind";
    this.line.push(...passed, job.id);
    this.#waiting = this.#waiting.filter(({ id }) => !passed.includes(id));
    this.#round.admission.charge(job);
    this.#refused.clear();
    return undefined;
  }

  #hasOpenNode({ shape: { eligible } }: GangRequest): boolean {
    return this.#taken.some((taken, node) => taken === 0 && eligible[node] === 1);
  }

  #groundOf(gang: GangRequest): CandidateNodes {
    const usable = usableNodes(this.#round.layout.capacity, gang);
    const own = usable.map((mayUse, node) => (this.#taken[node] === 0 ? mayUse : 0));
    const isContested = this.#wanted.some((wanted) => wantsTheSame(wanted, gang.shared));
    const isWhole = !isContested && own.every((mayUse, node) => mayUse === usable[node]);
    return { usable, own, isWhole, isContested };
  }

  /** Ids of those of the level before it that may use some of what it may use. */
  #passedOver(gang: GangRequest, { usable }: CandidateNodes): string[] {
    const meets = new Map<Uint8Array, boolean>();
    const passed: string[] = [];
    for (const { id, gang: other } of this.#waiting) {
      const { eligible } = other.shape;
      let meet = meets.get(eligible);
      if (meet === undefined) {
        meet = usable.some((mayUse, node) => mayUse === 1 && eligible[node] === 1);
        meets.set(eligible, meet);
      }
      if (!meet && !(other.shared && wantsTheSame(other.shared, gang.shared))) continue;
      passed.push(id);
      if (passed.length >= MAX_LINE) break;
    }
    return passed;
  }

  /** Gives the job the earlier of waiting for others to end and evicting some, on its own ground. */
  #promise(job: QueuedJob, gang: GangRequest, ground: CandidateNodes): boolean {
    const { placer, releases, standing } = this.#round;
    const { isContested } = ground;
    if (isContested && !allFit(placer.ledger.shared, [...this.#wanted, gang.shared!])) return false;
    const within = { ...gang, shape: { ...gang.shape, eligible: ground.own } };
    const due = () => releases.values().filter((release) => touches(release, within));
    const waitUntilMs = earliestStartMs(placer.ledger, due(), within);
    const evictedByMs = standing.nowMs + standing.settings.preemptionGraceMs;
    let startAtMs = waitUntilMs;
    if (waitUntilMs === undefined || evictedByMs < waitUntilMs) {
      const isInVain =
        !ground.isWhole && this.promises.leaveRoomAt(evictedByMs, releases.values(), gang);
      const victims = isInVain ? undefined : this.#victims(job, within, due(), evictedByMs);
      if (victims) startAtMs = evictedByMs;
      this.#evict(victims ?? [], job, evictedByMs);
    }
    if (startAtMs === undefined) return false;
    const jobId = job.id;
    return this.promises.make({ jobId, gang: within, startAtMs, due: due(), isContested });
  }

  /** Whether it fits with all gone that have an end, and all that it may evict. */
  #fitsOneDay(job: QueuedJob, gang: GangRequest): boolean {
    const { placer, releases, layout } = this.#round;
    const then = placer.ledger.clone();
    releaseUntil(then, releases.values(), Number.MAX_VALUE);
    for (const running of layout.running.values()) {
      const release = releases.get(running.id)!;
      if (!Number.isFinite(release.atMs) && mayPreempt(job, running)) releaseAll(then, release);
    }
    return gangFits(then, gang);
  }

  /** Whose going makes room besides those that are gone by then anyway; undefined where none do. */
  #victims(
    job: QueuedJob,
    within: GangRequest,
    due: readonly Release[],
    evictedByMs: number,
  ): Victim[] | undefined {
    const { placer, releases, standing, layout } = this.#round;
    const evictable = [...layout.running.values()]
      .filter((running) => mayPreempt(job, running))
      .map((running) => ({
        job: running,
        release: releases.get(running.id) as Release,
        lostGpuSeconds: lostGpuSeconds(running, standing.nowMs),
      }))
      .filter(({ release }) => release.atMs > evictedByMs && touches(release, within));
    if (evictable.length === 0) return undefined;
    const then = placer.ledger.clone();
    releaseUntil(then, due, evictedByMs);
    return chooseVictims(then, within, evictable);
  }

  #evict(victims: readonly Victim[], preemptor: QueuedJob, byMs: number): void {
    for (const { job, release, lostGpuSeconds: lost } of victims) {
      this.#round.releases.set(job.id, { ...release, atMs: byMs });
      this.preemptions.push({ victimId: job.id, forJobId: preemptor.id, lostGpuSeconds: lost });
    }
  }
}

/** Whether what it gives back may help the gang. */
function touches({ tasks, shared }: Release, gang: GangRequest): boolean {
  if (shared && gang.shared) return true;
  return tasks.some(({ node }) => gang.shape.eligible[node] === 1);
}

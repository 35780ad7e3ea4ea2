import type { Steps } from "@heddle/base/async/steps";
import { levelOf } from "../cluster/precedence.ts";
import { allFit, wantsTheSame } from "../cluster/shared-amounts.ts";
import { chooseVictims, lostGpuSeconds, mayPreempt, type Victim } from "../cycle/preemption.ts";
import {
  earliestStartMs,
  type Release,
  releaseAll,
  releaseUntil,
  TASKS_PER_STEP,
} from "../cycle/releases.ts";
import type { SchedulingCycle } from "../cycle/scheduling-cycle.ts";
import type { Preemption, QueuedJob, SharedRequest } from "../model.ts";
import { type GangRequest, gangFits, gangKey, usableNodes } from "../placement/gang.ts";
import type { PlanEntry } from "../plan-entry.ts";
import { BackfillReservations } from "./backfill-reservations.ts";

/** Reservations at a time; each evaluates the jobs that hold its nodes. */
const MAX_RESERVATIONS = 16;
/** Jobs that keep their rank in the queue: those with a reservation and those passed over. */
const MAX_RANKED = 64;
/** Jobs for which a reservation beyond the first is sought in one cycle. */
const MAX_SEARCHES = 64;
/** Jobs compared with the nodes of another in one step. */
const COMPARED_PER_STEP = 64;

/** The nodes that a waiting job may use, 1 by position. */
interface CandidateNodes {
  readonly usable: Uint8Array;
  /** The nodes that no waiting job before it may use. */
  readonly own: Uint8Array;
  /** `own` is all of `usable`, and no job before it wants the same shared amounts. */
  readonly isWhole: boolean;
  /** A job before it wants the same shared amounts. */
  readonly isContested: boolean;
}

/** A job without a reservation, since jobs before it may use too much of the same nodes. */
interface ReservedJob {
  readonly entry: PlanEntry;
  readonly gang: GangRequest;
}

/**
 * Reserves starts for the waiting jobs, in queue order.
 *
 * - The first gets its earliest start, by waiting or by preemption, whichever is sooner. Each
 *   further one gets the same on the nodes that no waiting job before it may use.
 * - So no two reservations share a node, and no job before a reservation can use what it holds.
 * - A job that waits without a reservation also keeps the later ones off its nodes and its quota.
 * - A job that can never start blocks no other.
 */
export class ReservationPlanner {
  readonly reservations: BackfillReservations;
  readonly preemptions: Preemption[] = [];
  /** What keeps its rank in the queue, in order. */
  readonly ranked: PlanEntry[] = [];
  readonly #cycle: SchedulingCycle;
  /** 1 by position for each node that an earlier job may use. */
  #taken: Uint8Array;
  /** The shared amounts that earlier jobs want. */
  readonly #wanted: SharedRequest[] = [];
  /** Keyed by gang key: why such a gang got no reservation since the last one was made. */
  readonly #refused = new Map<string, "behind" | "hopeless">();
  /** The jobs of the current level that a later reservation would pass over. */
  #waiting: ReservedJob[] = [];
  #level = Number.NaN;
  #searches = 0;

  constructor(cycle: SchedulingCycle) {
    this.#cycle = cycle;
    this.reservations = new BackfillReservations(cycle.placer);
    this.#taken = new Uint8Array(cycle.view.roster.slots.length);
  }

  /** Plans for a job within its quota that does not fit now. */
  *add(job: QueuedJob, gang: GangRequest): Steps<void> {
    if (this.reservations.size >= MAX_RESERVATIONS || this.#searches > MAX_SEARCHES) return;
    const { admission } = this.#cycle;
    // Like a job over its quota, it blocks no other.
    if (!admission.hasRoomBesideWaiting(job)) return;
    this.#enterLevel(levelOf(job));
    const key = gangKey(gang);
    const refused = this.#refused.get(key) ?? (yield* this.#seek(job, gang));
    if (!refused) return;
    this.#refused.set(key, refused);
    if (refused === "hopeless") return;
    this.#waiting.push({ entry: job.entry, gang });
    admission.keepForWaiting(job);
  }

  #enterLevel(level: number): void {
    if (level === this.#level) return;
    this.#level = level;
    this.#waiting = [];
  }

  /** Reserves the job's start, or returns why not. */
  *#seek(job: QueuedJob, gang: GangRequest): Steps<"behind" | "hopeless" | undefined> {
    if (this.reservations.size > 0 && !this.#hasOpenNode(gang)) return "behind";
    const nodes = this.#candidates(gang);
    yield;
    if (!nodes.own.includes(1)) return nodes.usable.includes(1) ? "behind" : "hopeless";
    if (this.reservations.size > 0) this.#searches++;
    const passed = yield* this.#passedOver(gang, nodes);
    const hasRank = this.ranked.length + passed.length < MAX_RANKED;
    const isReserved = hasRank && (yield* this.#reserve(job, gang, nodes));
    if (!isReserved && hasRank && (nodes.isWhole || !(yield* this.#fitsOneDay(job, gang)))) {
      return "hopeless";
    }
    for (let node = 0; node < nodes.usable.length; node++) {
      if (nodes.usable[node] === 1) this.#taken[node] = 1;
    }
    if (gang.shared) this.#wanted.push(gang.shared);
    if (!isReserved) return "behind";
    this.ranked.push(...passed, job.entry);
    this.#waiting = this.#waiting.filter(({ entry }) => !passed.includes(entry));
    this.#cycle.admission.charge(job);
    this.#refused.clear();
    return undefined;
  }

  #hasOpenNode({ shape: { eligible } }: GangRequest): boolean {
    return this.#taken.some((taken, node) => taken === 0 && eligible[node] === 1);
  }

  #candidates(gang: GangRequest): CandidateNodes {
    const usable = usableNodes(this.#cycle.view.capacity, gang);
    const own = usable.map((mayUse, node) => (this.#taken[node] === 0 ? mayUse : 0));
    const isContested = this.#wanted.some((wanted) => wantsTheSame(wanted, gang.shared));
    const isWhole = !isContested && own.every((mayUse, node) => mayUse === usable[node]);
    return { usable, own, isWhole, isContested };
  }

  /** The waiting jobs of its level that may use some of the same nodes or shared amounts. */
  *#passedOver(gang: GangRequest, { usable }: CandidateNodes): Steps<PlanEntry[]> {
    const known = new Map<Uint8Array, boolean>();
    const passed: PlanEntry[] = [];
    for (const { entry, gang: other } of this.#waiting) {
      const { eligible } = other.shape;
      let overlaps = known.get(eligible);
      if (overlaps === undefined) {
        if (known.size % COMPARED_PER_STEP === COMPARED_PER_STEP - 1) yield;
        overlaps = usable.some((mayUse, node) => mayUse === 1 && eligible[node] === 1);
        known.set(eligible, overlaps);
      }
      if (!overlaps && !(other.shared && wantsTheSame(other.shared, gang.shared))) continue;
      passed.push(entry);
      if (passed.length >= MAX_RANKED) break;
    }
    return passed;
  }

  /** Reserves the earlier of waiting and preemption, on the job's own nodes. */
  *#reserve(job: QueuedJob, gang: GangRequest, nodes: CandidateNodes): Steps<boolean> {
    const { placer, releases, snapshot } = this.#cycle;
    const { isContested } = nodes;
    if (isContested && !allFit(placer.ledger.shared, [...this.#wanted, gang.shared!])) return false;
    const within = { ...gang, shape: { ...gang.shape, eligible: nodes.own } };
    const all = yield* releases.all();
    const due = yield* helpful(all, within);
    const waitUntilMs = yield* earliestStartMs(placer.ledger, due, within);
    const evictedByMs = snapshot.nowMs + snapshot.settings.preemptionGraceMs;
    let startAtMs = waitUntilMs;
    if (waitUntilMs === undefined || evictedByMs < waitUntilMs) {
      const isInVain =
        !nodes.isWhole && (yield* this.reservations.leaveRoomAt(evictedByMs, all.values(), gang));
      const victims = isInVain ? undefined : yield* this.#victims(job, within, due, evictedByMs);
      if (victims) startAtMs = evictedByMs;
      this.#evict(victims ?? [], job, evictedByMs);
    }
    if (startAtMs === undefined) return false;
    // The victims' releases are earlier now.
    const left = yield* helpful(all, within);
    const terms = { entry: job.entry, gang: within, startAtMs, due: left, isContested };
    return yield* this.reservations.make(terms);
  }

  /** Whether it fits after the end of all jobs that have one and of all that it may preempt. */
  *#fitsOneDay(job: QueuedJob, gang: GangRequest): Steps<boolean> {
    const { placer, releases, view } = this.#cycle;
    const all = yield* releases.all();
    const then = placer.ledger.clone();
    yield* releaseUntil(then, all.values(), Number.MAX_VALUE);
    const endless = [...view.running.values()].filter(
      (running) => !Number.isFinite(all.get(running.id)!.atMs) && mayPreempt(job, running),
    );
    yield;
    for (const { id } of endless) releaseAll(then, all.get(id)!);
    yield;
    return gangFits(then, gang);
  }

  /** The victims that make room, besides the jobs that end by then anyway; undefined if none do. */
  *#victims(
    job: QueuedJob,
    within: GangRequest,
    due: readonly Release[],
    evictedByMs: number,
  ): Steps<Victim[] | undefined> {
    const { placer, releases, snapshot, view } = this.#cycle;
    const all = yield* releases.all();
    const useful = new Set(due);
    const evictable = [...view.running.values()]
      .map((running) => ({
        job: running,
        release: all.get(running.id)!,
        lostGpuSeconds: lostGpuSeconds(running, snapshot.nowMs),
      }))
      .filter(({ job: running, release }) => {
        return release.atMs > evictedByMs && useful.has(release) && mayPreempt(job, running);
      });
    if (evictable.length === 0) return undefined;
    const then = placer.ledger.clone();
    yield* releaseUntil(then, due, evictedByMs);
    return yield* chooseVictims(then, within, evictable);
  }

  #evict(victims: readonly Victim[], preemptor: QueuedJob, byMs: number): void {
    for (const { job, release, lostGpuSeconds: lost } of victims) {
      this.#cycle.releases.set(job.id, { ...release, atMs: byMs });
      this.preemptions.push({ victimId: job.id, forEntry: preemptor.entry, lostGpuSeconds: lost });
    }
  }
}

/** The releases on the gang's nodes, or of shared amounts if it wants any. */
function* helpful(all: ReadonlyMap<string, Release>, gang: GangRequest): Steps<Release[]> {
  const { shape, shared } = gang;
  const found: Release[] = [];
  let examined = 0;
  for (const release of all.values()) {
    const { tasks } = release;
    const helps =
      (shared && release.shared) || tasks.some(({ node }) => shape.eligible[node] === 1);
    if (helps) found.push(release);
    examined += 1 + tasks.length;
    if (examined < TASKS_PER_STEP) continue;
    examined = 0;
    yield;
  }
  return found;
}

import type { Steps } from "@heddle/base/async/steps";
import type { Ledger } from "../cluster/ledger.ts";
import { addShared, allFit, sharedFits, shareOf } from "../cluster/shared-amounts.ts";
import { type Release, releaseAll, releaseUntil, takeAll } from "../cycle/releases.ts";
import type { Reservation, SharedAmounts, SharedRequest } from "../model.ts";
import {
  type GangPlacer,
  type GangRequest,
  gangFits,
  gangKey,
  namePlacements,
  type PlacedGang,
} from "../placement/gang.ts";
import type { PlanEntry } from "../plan-entry.ts";

/** A reservation and the shared amounts that it needs. */
interface HeldReservation {
  readonly reservation: Reservation;
  /** The resources that the job takes at its start; `atMs` is the reserved start. */
  readonly release: Release;
  readonly wanted: SharedRequest | undefined;
  /** The shared amounts that are free at its start, without the job itself. */
  sharedThen: SharedAmounts;
  /** Jobs before it want the same shared amounts: then there must be enough for all at any time. */
  readonly isContested: boolean;
}

const NONE: ReadonlyMap<HeldReservation, SharedAmounts> = new Map();

/** A placer on what is free beside the reservations that start before `endsByMs`. */
interface FreeBeside {
  readonly placer: GangPlacer;
  readonly endsByMs: number;
}

/** The inputs of a reservation. */
interface ReservationRequest {
  readonly entry: PlanEntry;
  /** Its eligible nodes belong to this reservation alone. */
  readonly gang: GangRequest;
  readonly startAtMs: number;
  /** The releases on these nodes or of shared amounts. */
  readonly due: Iterable<Release>;
  /** A job before it wants the same shared amounts, and there is enough for all now. */
  readonly isContested: boolean;
}

/**
 * The reservations of one cycle and the ledgers that keep them. EASY backfill (Lifka, "The ANL/IBM SP
 * Scheduling System", 1995) with one reservation for each set of nodes.
 *
 * - A reservation binds the nodes on which it has places. `then` has what is free on them at the
 *   reserved start, with the gang placed.
 * - A job that ends before that start may use anything that is free now.
 * - A longer job must fit in what is free now and at that time, device by device.
 * - Shared amounts are checked when they are taken: the reserved job's must be free at its start.
 */
export class BackfillReservations {
  readonly #now: GangPlacer;
  readonly #held: HeldReservation[] = [];
  /** Valid only at the nodes that a reservation binds. */
  #then: Ledger | undefined;
  /** Keyed by node: the start of the reservation that binds it. */
  readonly #startMs = new Map<number, number>();
  /** Keyed by the number of reservations that bind a job: the lesser of those now and at that time. */
  readonly #besides = new Map<number, FreeBeside>();
  /** Keyed by gang key: the end from which on no place was found for such a gang in this cycle. */
  readonly #refusedFromMs = new Map<string, number>();

  constructor(now: GangPlacer) {
    this.#now = now;
  }

  get size(): number {
    return this.#held.length;
  }

  /** In the order of their creation. */
  get reservations(): readonly Reservation[] {
    return this.#held.map(({ reservation }) => reservation);
  }

  /** Reserves the start; false if the gang does not fit even then. */
  *make({ entry, gang, startAtMs, due, isContested }: ReservationRequest): Steps<boolean> {
    const { ledger: now } = this.#now;
    const then = now.clone();
    yield* releaseUntil(then, due, startAtMs);
    const placed = yield* this.#now.on(then).placeInSteps(gang);
    if (!placed) return false;
    const { tasks, shared } = placed;
    this.#then ??= now.clone();
    for (const { node } of tasks) {
      this.#then.setLesser(node, then, then);
      this.#startMs.set(node, startAtMs);
    }
    this.#held.push({
      reservation: { entry, startAtMs, placements: namePlacements(then.nodes, tasks), shared },
      release: { atMs: startAtMs, shape: gang.shape, ...placed },
      wanted: gang.shared,
      sharedThen: addShared(then.shared, shared, 1),
      isContested,
    });
    this.#besides.clear();
    return true;
  }

  /** Whether the gang fits at the time without using anything reserved. */
  *leaveRoomAt(atMs: number, due: Iterable<Release>, gang: GangRequest): Steps<boolean> {
    const then = this.#now.ledger.clone();
    yield* releaseUntil(then, due, atMs);
    for (const { release } of this.#held) takeAll(then, release);
    yield;
    return gangFits(then, gang);
  }

  /**
   * Places a gang that ends by the time so that every reservation holds; undefined if impossible. A
   * cycle only takes, so a gang without a place finds none later in it, nor does a longer one.
   */
  *place(gang: GangRequest, endsByMs: number): Steps<PlacedGang | undefined> {
    const refused = this.#refusedFromMs.size > 0 && this.#refusedFromMs.get(gangKey(gang));
    if (typeof refused === "number" && endsByMs >= refused) return undefined;
    const sharedAfter = this.#sharedAfter(gang, endsByMs);
    const found = sharedAfter && (yield* this.#now.placeInSteps(gang));
    const placed = found && (yield* this.#besideReservations(gang, endsByMs, found));
    if (!placed) {
      const fromMs = sharedAfter && !found ? Number.NEGATIVE_INFINITY : endsByMs;
      this.#refusedFromMs.set(gangKey(gang), fromMs);
      return undefined;
    }
    for (const [held, shared] of sharedAfter) held.sharedThen = shared;
    for (const { node } of placed.tasks) this.#follow(node);
    return placed;
  }

  /** The places found now, or others if a reservation binds one of them. */
  *#besideReservations(
    gang: GangRequest,
    endsByMs: number,
    found: PlacedGang,
  ): Steps<PlacedGang | undefined> {
    if (!found.tasks.some(({ node }) => this.#binds(node, endsByMs))) return found;
    const { tasks, shared } = found;
    releaseAll(this.#now.ledger, { shape: gang.shape, tasks, shared });
    yield;
    return yield* this.#placeBeside(gang, endsByMs);
  }

  *#placeBeside(gang: GangRequest, endsByMs: number): Steps<PlacedGang | undefined> {
    const { ledger: now } = this.#now;
    const beside = this.#besideUntil(endsByMs);
    beside.ledger.shared = now.shared;
    const placed = yield* beside.placeInSteps(gang);
    if (!placed) return undefined;
    for (const { node, devices } of placed.tasks) {
      now.take(node, gang.shape, devices);
      if (this.#binds(node, endsByMs)) this.#then!.take(node, gang.shape, devices);
    }
    now.shared = beside.ledger.shared;
    return placed;
  }

  #binds(node: number, endsByMs: number): boolean {
    const startMs = this.#startMs.get(node);
    return startMs !== undefined && startMs < endsByMs;
  }

  #besideUntil(endsByMs: number): GangPlacer {
    const binding = this.#held.filter(({ release }) => release.atMs < endsByMs).length;
    let beside = this.#besides.get(binding);
    if (!beside) {
      beside = { placer: this.#now.on(this.#now.ledger.clone()), endsByMs };
      this.#besides.set(binding, beside);
      for (const node of this.#startMs.keys()) this.#followIn(beside, node);
    }
    return beside.placer;
  }

  /** Updates the ledgers after a change of the node's free amounts. */
  #follow(node: number): void {
    for (const beside of this.#besides.values()) this.#followIn(beside, node);
  }

  #followIn({ placer, endsByMs }: FreeBeside, node: number): void {
    const { ledger: now } = this.#now;
    placer.ledger.setLesser(node, now, this.#binds(node, endsByMs) ? this.#then! : now);
  }

  /**
   * The free shared amounts at each binding reservation's start if the gang starts now; undefined
   * if one of them lacked something.
   */
  #sharedAfter(
    { shared: wanted }: GangRequest,
    endsByMs: number,
  ): ReadonlyMap<HeldReservation, SharedAmounts> | undefined {
    if (!wanted || this.#held.length === 0) return NONE;
    const after = new Map<HeldReservation, SharedAmounts>();
    const { shared: free } = this.#now.ledger;
    const taken = shareOf(free, wanted);
    for (const held of this.#held) {
      if (held.release.atMs >= endsByMs) continue;
      const left = addShared(held.sharedThen, taken, -1);
      if (!sharedFits(left, held.wanted)) return undefined;
      after.set(held, left);
    }
    const isContested = this.#held.some((held) => held.isContested);
    const all = [...this.#held.flatMap((held) => held.wanted ?? []), wanted];
    return isContested && !allFit(free, all) ? undefined : after;
  }
}

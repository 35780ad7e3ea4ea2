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

/** A promise, and what it needs of that which belongs to no node. */
interface Promised {
  readonly reservation: Reservation;
  /** What it takes when it starts. */
  readonly release: Release;
  readonly wanted: SharedRequest | undefined;
  /** What is free then that belongs to no node, without the job itself. */
  sharedThen: SharedAmounts;
  /** Others before it want of the same: then there must be enough for all of them at any time. */
  readonly isContested: boolean;
}

const NONE: ReadonlyMap<Promised, SharedAmounts> = new Map();

/** Places for jobs that end so late. */
interface Beside {
  readonly placer: GangPlacer;
  readonly endsByMs: number;
}

/** What a promise is made of. */
interface PromiseTerms {
  readonly jobId: string;
  /** On the nodes of the promise alone: no other promise may have places there. */
  readonly gang: GangRequest;
  readonly startAtMs: number;
  /** What those give back that hold something of these nodes, or of what belongs to no node. */
  readonly due: readonly Release[];
  /** A job before it wants of the same that belongs to no node, and now there is enough for all. */
  readonly isContested: boolean;
}

/**
 * The promised starts, and the ledgers that keep them (EASY backfill: Lifka, "The ANL/IBM SP
 * Scheduling System", 1995; with one promise for each set of nodes).
 *
 * A promise binds the nodes on which it has places. `then` has, for each of them, what is free at
 * the promised start with the gang on it. A job that ends before that may use anything free there
 * now. One that runs past it must fit in what is free both now and then, device by device; so the
 * places are free when their time comes. What belongs to no node is looked at as it is taken: after
 * a start the promised job's must still be there then, on whatever servers.
 */
export class BackfillReservations {
  readonly #now: GangPlacer;
  readonly #promises: Promised[] = [];
  /** Read at the nodes that a promise binds, and nowhere else. */
  #then: Ledger | undefined;
  /** By node: the start of the promise that binds it. */
  readonly #startMs = new Map<number, number>();
  /** By how many promises bind a job: the lesser of now and then at their nodes, now elsewhere. */
  readonly #besides = new Map<number, Beside>();
  /** By what was asked: from which end on it has found no place in this decision. */
  readonly #refusedFromMs = new Map<string, number>();

  constructor(now: GangPlacer) {
    this.#now = now;
  }

  get size(): number {
    return this.#promises.length;
  }

  /** In the order in which they were made. */
  get reservations(): readonly Reservation[] {
    return this.#promises.map(({ reservation }) => reservation);
  }

  /** Promises the gang its start, or says false where it does not fit even then. */
  make({ jobId, gang, startAtMs, due, isContested }: PromiseTerms): boolean {
    const { ledger: now } = this.#now;
    const then = now.clone();
    releaseUntil(then, due, startAtMs);
    const placed = this.#now.on(then).place(gang);
    if (!placed) return false;
    const { tasks, shared } = placed;
    this.#then ??= now.clone();
    for (const { node } of tasks) {
      this.#then.setLesser(node, then, then);
      this.#startMs.set(node, startAtMs);
    }
    this.#promises.push({
      reservation: { jobId, startAtMs, placements: namePlacements(then.nodes, tasks), shared },
      release: { atMs: startAtMs, shape: gang.shape, ...placed },
      wanted: gang.shared,
      sharedThen: addShared(then.shared, shared, 1),
      isContested,
    });
    this.#besides.clear();
    return true;
  }

  /** Whether the gang fits at the time if all that is promised stays untouched until then. */
  leaveRoomAt(atMs: number, due: readonly Release[], gang: GangRequest): boolean {
    const then = this.#now.ledger.clone();
    releaseUntil(then, due, atMs);
    for (const { release } of this.#promises) takeAll(then, release);
    return gangFits(then, gang);
  }

  /**
   * Places a gang that ends by then so that every promise holds, or says undefined. A decision only
   * takes: what has found no place finds none later, nor does the same for longer.
   */
  place(gang: GangRequest, endsByMs: number): PlacedGang | undefined {
    const refused = this.#refusedFromMs.size > 0 && this.#refusedFromMs.get(gangKey(gang));
    if (typeof refused === "number" && endsByMs >= refused) return undefined;
    const sharedAfter = this.#sharedAfter(gang, endsByMs);
    const found = sharedAfter && this.#now.place(gang);
    const placed = found && this.#besidePromises(gang, endsByMs, found);
    if (!placed) {
      const fromMs = sharedAfter && !found ? Number.NEGATIVE_INFINITY : endsByMs;
      this.#refusedFromMs.set(gangKey(gang), fromMs);
      return undefined;
    }
    for (const [promise, shared] of sharedAfter) promise.sharedThen = shared;
    for (const { node } of placed.tasks) this.#follow(node);
    return placed;
  }

  /** The places that were found now, or others where a promise binds one of them. */
  #besidePromises(gang: GangRequest, endsByMs: number, found: PlacedGang): PlacedGang | undefined {
    if (!found.tasks.some(({ node }) => this.#binds(node, endsByMs))) return found;
    const { tasks, shared } = found;
    releaseAll(this.#now.ledger, { shape: gang.shape, tasks, shared });
    return this.#placeBeside(gang, endsByMs);
  }

  /** The best places beside those that are promised. */
  #placeBeside(gang: GangRequest, endsByMs: number): PlacedGang | undefined {
    const { ledger: now } = this.#now;
    const beside = this.#besideUntil(endsByMs);
    beside.ledger.shared = now.shared;
    const placed = beside.place(gang);
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
    const binding = this.#promises.filter(({ release }) => release.atMs < endsByMs).length;
    let beside = this.#besides.get(binding);
    if (!beside) {
      beside = { placer: this.#now.on(this.#now.ledger.clone()), endsByMs };
      this.#besides.set(binding, beside);
      for (const node of this.#startMs.keys()) this.#followIn(beside, node);
    }
    return beside.placer;
  }

  /** What is free on the node now has changed. */
  #follow(node: number): void {
    for (const beside of this.#besides.values()) this.#followIn(beside, node);
  }

  #followIn({ placer, endsByMs }: Beside, node: number): void {
    const { ledger: now } = this.#now;
    placer.ledger.setLesser(node, now, this.#binds(node, endsByMs) ? this.#then! : now);
  }

  /**
   * By the promises that bind it: what is free at their starts that belongs to no node, where the
   * gang starts now; undefined where one of them would lack something.
   */
  #sharedAfter(
    { shared: wanted }: GangRequest,
    endsByMs: number,
  ): ReadonlyMap<Promised, SharedAmounts> | undefined {
    if (!wanted || this.#promises.length === 0) return NONE;
    const after = new Map<Promised, SharedAmounts>();
    const { shared: free } = this.#now.ledger;
    const taken = shareOf(free, wanted);
    for (const promise of this.#promises) {
      if (promise.isContested || promise.release.atMs >= endsByMs) continue;
      const left = addShared(promise.sharedThen, taken, -1);
      if (!sharedFits(left, promise.wanted)) return undefined;
      after.set(promise, left);
    }
    const isContested = this.#promises.some((promise) => promise.isContested);
    const all = [...this.#promises.flatMap((promise) => promise.wanted ?? []), wanted];
    return isContested && !allFit(free, all) ? undefined : after;
  }
}

import { type GangPlacer, type GangRequest, namePlacements, type PlacedGang } from "./gang.ts";
import { Ledger } from "./ledger.ts";
import type { Reservation, SharedAmounts, SharedRequest } from "./model.ts";
import { type Release, releaseUntil } from "./releases.ts";
import { addShared, sharedFits, shareOf } from "./shared-amounts.ts";

/**
 * The head job's promise, and the ledgers that keep it (EASY backfill: Lifka, "The ANL/IBM SP
 * Scheduling System", 1995).
 *
 * `then` is the cluster at the promised start with the head's gang already on it. A job that ends
 * before that may use anything free now. One that runs past it must fit in what is free both now
 * and then, device by device; so the head's places are free when its time comes. What belongs to no
 * node is looked at as it is taken: after a start the head's must still be there then, on whatever
 * servers.
 */
export class PromisedStart {
  readonly reservation: Reservation;
  readonly #now: GangPlacer;
  readonly #then: Ledger;
  /** Invariant: the lesser of `now` and `then` on every node. */
  readonly #both: GangPlacer;
  /** What the head takes that belongs to no node, and what is free of it then, without the head. */
  readonly #wanted: SharedRequest | undefined;
  #sharedThen: SharedAmounts;

  private constructor(
    reservation: Reservation,
    now: GangPlacer,
    then: Ledger,
    wanted: SharedRequest | undefined,
  ) {
    this.reservation = reservation;
    this.#now = now;
    this.#then = then;
    this.#both = now.on(Ledger.lesser(now.ledger, then));
    this.#wanted = wanted;
    this.#sharedThen = addShared(then.shared, reservation.shared, 1);
  }

  /** Promises the gang its start; undefined where it does not fit even then. */
  static make(
    jobId: string,
    gang: GangRequest,
    startAtMs: number,
    now: GangPlacer,
    releases: readonly Release[],
  ): PromisedStart | undefined {
    const then = now.ledger.clone();
    releaseUntil(then, releases, startAtMs);
    const placed = now.on(then).place(gang);
    if (!placed) return undefined;
    const { tasks, shared } = placed;
    const reservation = {
      ...{ jobId, startAtMs, shared },
      placements: namePlacements(then.nodes, tasks),
    };
    return new PromisedStart(reservation, now, then, gang.shared);
  }

  /** Places a gang so that the promise holds, or says undefined. */
  backfill(gang: GangRequest, endsByMs: number): PlacedGang | undefined {
    const { ledger: now } = this.#now;
    const { ledger: both } = this.#both;
    if (endsByMs <= this.reservation.startAtMs) {
      const placed = this.#now.place(gang);
      for (const { node } of placed?.tasks ?? []) both.setLesser(node, now, this.#then);
      return placed;
    }
    const sharedThen = this.#sharedAfter(gang);
    if (!sharedFits(sharedThen, this.#wanted)) return undefined;
    both.shared = now.shared;
    const placed = this.#both.place(gang);
    if (!placed) return undefined;
    for (const ledger of [now, this.#then]) {
      for (const { node, devices } of placed.tasks) ledger.take(node, gang.shape, devices);
    }
    now.shared = both.shared;
    this.#sharedThen = sharedThen;
    return placed;
  }

  /** What is free at the promised start that belongs to no node, where the gang starts now. */
  #sharedAfter({ shared }: GangRequest): SharedAmounts {
    return addShared(this.#sharedThen, shared && shareOf(this.#now.ledger.shared, shared), -1);
  }
}

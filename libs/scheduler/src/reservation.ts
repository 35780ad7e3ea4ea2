import { type GangPlacer, type GangRequest, namePlacements, type PlacedTask } from "./gang.ts";
import { Ledger } from "./ledger.ts";
import type { Reservation } from "./model.ts";
import { type Release, releaseUntil } from "./releases.ts";
import { lesserShared } from "./shared-amounts.ts";

/**
 * The head job's promise, and the ledgers that keep it (EASY backfill: Lifka, "The ANL/IBM SP
 * Scheduling System", 1995).
 *
 * `then` is the cluster at the promised start with the head's gang already on it. A job that ends
 * before that may use anything free now. One that runs past it must fit in what is free both now
 * and then, device by device; so the head's places are free when its time comes.
 */
export class PromisedStart {
  readonly reservation: Reservation;
  readonly #now: GangPlacer;
  readonly #then: Ledger;
  /** Invariant: the lesser of `now` and `then`, everywhere. */
  readonly #both: GangPlacer;

  private constructor(reservation: Reservation, now: GangPlacer, then: Ledger) {
    this.reservation = reservation;
    this.#now = now;
    this.#then = then;
    this.#both = now.on(Ledger.lesser(now.ledger, then));
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
    const placements = namePlacements(then.nodes, placed);
    return new PromisedStart({ jobId, startAtMs, placements }, now, then);
  }

  /** Places a gang so that the promise holds, or says undefined. */
  backfill(gang: GangRequest, endsByMs: number): PlacedTask[] | undefined {
    if (endsByMs <= this.reservation.startAtMs) {
      const placed = this.#now.place(gang);
      const both = this.#both.ledger;
      for (const { node } of placed ?? []) both.setLesser(node, this.#now.ledger, this.#then);
      both.shared = lesserShared(this.#now.ledger.shared, this.#then.shared);
      return placed;
    }
    const placed = this.#both.place(gang);
    if (!placed) return undefined;
    for (const ledger of [this.#now.ledger, this.#then]) {
      for (const { node, devices } of placed) ledger.take(node, gang.shape, devices);
      ledger.takeShared(gang.shared);
    }
    return placed;
  }
}

import { AppError } from "@heddle/base/errors";
import type { PushResult } from "@heddle/parameters/data-plane/push-announcement";

/** A push that a worker has announced and that is not done yet. */
export interface PendingPush {
  readonly rank: number;
  readonly clock: number;
  readonly weight: number;
  readonly learningRate: number;
  readonly sources: readonly string[];
  /** The part's squared norm over all shards. */
  readonly squares: number;
  readonly done: PromiseWithResolvers<PushResult>;
  /** Aborted when the worker cancels the call, or dies. */
  readonly signal: AbortSignal;
}

/** The parts of the next update: those announced, and those in the sums. */
export class UpdateRound {
  readonly #announced = new Map<number, PendingPush>();
  readonly #added = new Map<number, PendingPush>();

  /** Announced and not taken yet; one for each rank. */
  get announced(): readonly PendingPush[] {
    return [...this.#announced.values()];
  }

  /** In the sums, in the order in which they were added. */
  get added(): readonly PendingPush[] {
    return [...this.#added.values()];
  }

  /** A retried push replaces the first, whose caller has disconnected. */
  announce(push: PendingPush): void {
    const before = this.#announced.get(push.rank);
    this.#announced.set(push.rank, push);
    before?.done.reject(new AppError("cancelled", `push ${push.clock} was sent again`));
  }

  /** The announced push of a rank; it stays announced until it is `settled`. */
  of(rank: number): PendingPush | undefined {
    return this.#announced.get(rank);
  }

  settled(push: PendingPush): void {
    if (this.#announced.get(push.rank) === push) this.#announced.delete(push.rank);
  }

  add(push: PendingPush): void {
    this.#added.set(push.rank, push);
  }

  /** Empties the sums; returns their parts. */
  empty(): readonly PendingPush[] {
    const before = this.added;
    this.#added.clear();
    return before;
  }
}

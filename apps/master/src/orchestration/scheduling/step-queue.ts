import { setImmediate as nextTurn } from "node:timers/promises";
import type { Steps } from "@heddle/base/async/steps";
import { AppError } from "@heddle/base/errors";

/** How long steps may hold the event loop before it has a turn. */
const TURN_MS = 10;
/** Pieces of work that may wait. */
const MAX_WAITING = 256;

interface Waiting {
  readonly isUrgent: boolean;
  readonly run: () => Promise<void>;
}

/**
 * Runs pieces of work in steps, one piece at a time: urgent ones first, then first in, first out. A turn
 * of the event loop is at most one step longer than TURN_MS.
 */
export class StepQueue {
  readonly #waiting: Waiting[] = [];
  #isBusy = false;

  /** Rejects with `overloaded` when the queue is full; urgent work is always taken. */
  run<T>(make: () => Steps<T>, isUrgent = false): Promise<T> {
    if (!isUrgent && this.#waiting.length >= MAX_WAITING) {
      const message = `${MAX_WAITING} explanations of jobs wait on this master. Try again shortly.`;
      return Promise.reject(new AppError("overloaded", message, { retryAfterMs: 1_000 }));
    }
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    const run = () => runInTurns(make).then(resolve, reject);
    const behind = this.#waiting.findIndex((other) => !other.isUrgent);
    const place = isUrgent && behind !== -1 ? behind : this.#waiting.length;
    this.#waiting.splice(place, 0, { isUrgent, run });
    if (!this.#isBusy) void this.#pump();
    return promise;
  }

  async #pump(): Promise<void> {
    this.#isBusy = true;
    for (let next = this.#waiting.shift(); next; next = this.#waiting.shift()) await next.run();
    this.#isBusy = false;
  }
}

/** Runs steps to their end and gives the event loop a turn every TURN_MS. */
async function runInTurns<T>(make: () => Steps<T>): Promise<T> {
  const steps = make();
  for (;;) {
    const untilMs = performance.now() + TURN_MS;
    do {
      const { done, value } = steps.next();
      if (done) return value;
    } while (performance.now() < untilMs);
    await nextTurn();
  }
}

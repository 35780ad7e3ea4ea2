import { setImmediate as nextTurn } from "node:timers/promises";
import { AppError } from "@heddle/base/errors";

/** How long steps may hold the event loop at a time. */
const TURN_MS = 10;
/** Pieces of work that may wait for their time. */
const MAX_WAITING = 256;

/** Work in steps, between which the event loop may go on. */
export type Steps<T> = Generator<void, T>;

interface Waiting {
  readonly isUrgent: boolean;
  readonly run: () => Promise<void>;
}

/**
 * Does work in steps, one piece after the other: what is urgent first, then in the order of asking. No
 * turn of the event loop is longer than a step beyond TURN_MS.
 */
export class StepQueue {
  readonly #waiting: Waiting[] = [];
  #isBusy = false;

  /** Rejects with `overloaded` where too much waits; what is urgent always has a place. */
  run<T>(make: () => Steps<T>, isUrgent = false): Promise<T> {
    if (!isUrgent && this.#waiting.length >= MAX_WAITING) {
      const message = `${MAX_WAITING} explanations of jobs wait on this master. Try again shortly.`;
      return Promise.reject(new AppError("overloaded", message, { retryAfterMs: 1_000 }));
    }
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    const run = () => inTurns(make).then(resolve, reject);
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

async function inTurns<T>(make: () => Steps<T>): Promise<T> {
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

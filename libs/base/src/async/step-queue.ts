import { setImmediate as nextTurn } from "node:timers/promises";
import { AppError } from "../errors.ts";
import { runInTurns, type Steps, TURN_MS } from "./steps.ts";

/** Pieces of work that may wait. */
const MAX_WAITING = 256;

interface Waiting {
  readonly isUrgent: boolean;
  readonly run: () => Promise<void>;
}

/**
 * Runs pieces of work in steps, one piece at a time: urgent ones first, then first in, first out. A turn
 * of the event loop is at most one step longer than twice TURN_MS, however many short pieces wait.
 */
export class StepQueue {
  /** The work in the plural, for the error of a full queue. */
  readonly #name: string;
  readonly #waiting: Waiting[] = [];
  #isBusy = false;

  constructor(name: string) {
    this.#name = name;
  }

  /** Rejects with `overloaded` when the queue is full; urgent work is always taken. */
  run<T>(make: () => Steps<T>, isUrgent = false): Promise<T> {
    if (!isUrgent && this.#waiting.length >= MAX_WAITING) {
      const message = `${MAX_WAITING} ${this.#name} wait on this master. Try again shortly.`;
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
    let turnMs = performance.now();
    for (let next = this.#waiting.shift(); next; next = this.#waiting.shift()) {
      await next.run();
      if (performance.now() - turnMs < TURN_MS) continue;
      await nextTurn();
      turnMs = performance.now();
    }
    this.#isBusy = false;
  }
}

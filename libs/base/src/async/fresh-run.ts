import { setTimeout as delay } from "node:timers/promises";
import { restAfter } from "./rest.ts";

/**
 * A result that shows every change before the call for it. A run serves all calls since the one before
 * began. Between two runs it rests as long as the last took, so half of the time stays for other work.
 */
export class FreshRun<Result> {
  readonly #work: () => Promise<Result>;
  #last: Promise<unknown> = Promise.resolve();
  #next: Promise<Result> | undefined;

  constructor(work: () => Promise<Result>) {
    this.#work = work;
  }

  get(): Promise<Result> {
    this.#next ??= this.#last.then(() => this.#begin());
    return this.#next;
  }

  #begin(): Promise<Result> {
    this.#next = undefined;
    const beganMs = performance.now();
    const run = this.#work();
    const rest = () => delay(restAfter(performance.now() - beganMs), undefined, { ref: false });
    this.#last = run.then(rest, rest);
    return run;
  }
}

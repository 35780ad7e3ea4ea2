import type { StepQueue } from "./step-queue.ts";
import type { Steps } from "./steps.ts";

/** How long the result of a long run serves further callers. */
const KEPT_MS = 1_000;
/** Steps from which a run is long; the result of a shorter one is not kept. */
const LONG_STEPS = 1_024;

/** Runs steps in the queue of the shared run. */
export type InSteps = <T>(make: () => Steps<T>) => Promise<T>;

/**
 * A result that is computed in steps and shared. Callers during a run get its result, and after a
 * long run so do callers of the next second.
 */
export class SharedRun<Result> {
  readonly #queue: StepQueue;
  readonly #work: (inSteps: InSteps) => Promise<Result>;
  #shared: Promise<Result> | undefined;

  constructor(queue: StepQueue, work: (inSteps: InSteps) => Promise<Result>) {
    this.#queue = queue;
    this.#work = work;
  }

  get(): Promise<Result> {
    return this.#shared ?? this.renew();
  }

  /** The result of a run that begins now, for callers who must see all changes before their call. */
  renew(): Promise<Result> {
    const run = this.#run(() => {
      if (this.#shared === run) this.#shared = undefined;
    });
    this.#shared = run;
    return run;
  }

  async #run(drop: () => void): Promise<Result> {
    let steps = 0;
    const inSteps: InSteps = (make) =>
      this.#queue.run(function* () {
        const work = make();
        for (; ; steps++) {
          const { done, value } = work.next();
          if (done) return value;
          yield;
        }
      });
    try {
      return await this.#work(inSteps);
    } finally {
      if (steps < LONG_STEPS) drop();
      else setTimeout(drop, KEPT_MS).unref();
    }
  }
}

import { type Clock, systemClock } from "../clock.ts";
import { restAfter } from "./rest.ts";

/** Runs below this are so cheap that they need no rest. */
const CHEAP_MS = 1;
/** The rest after a run, as a multiple of its duration: runs take at most a tenth of the time. */
const REST_FACTOR = 9;

/**
 * Runs work after requests: at once in the next turn of the event loop, or within a time in which
 * further requests are merged. After a long run it rests, so that work that grows with a cluster
 * leaves most of the time to other work.
 */
export class PacedRun {
  readonly #work: () => void;
  readonly #clock: Pick<Clock, "monotonicMs">;
  #immediate: NodeJS.Immediate | undefined;
  #timer: NodeJS.Timeout | undefined;
  #dueMs = Number.POSITIVE_INFINITY;
  #restsUntilMs = Number.NEGATIVE_INFINITY;
  #closed = false;

  constructor(work: () => void, clock: Pick<Clock, "monotonicMs"> = systemClock) {
    this.#work = work;
    this.#clock = clock;
  }

  /** The work runs within this time, or as soon as the rest has ended. */
  request(withinMs = 0): void {
    const nowMs = this.#clock.monotonicMs();
    const dueMs = Math.max(nowMs + withinMs, this.#restsUntilMs);
    if (this.#closed || dueMs >= this.#dueMs) return;
    this.#cancel();
    this.#dueMs = dueMs;
    if (dueMs <= nowMs) this.#immediate = setImmediate(() => this.#run());
    else this.#timer = setTimeout(() => this.#run(), dueMs - nowMs).unref();
  }

  close(): void {
    this.#closed = true;
    this.#cancel();
  }

  #cancel(): void {
    clearImmediate(this.#immediate);
    clearTimeout(this.#timer);
  }

  #run(): void {
    this.#dueMs = Number.POSITIVE_INFINITY;
    const beganMs = this.#clock.monotonicMs();
    try {
      this.#work();
    } finally {
      const endedMs = this.#clock.monotonicMs();
      const tookMs = endedMs - beganMs;
      if (tookMs >= CHEAP_MS) this.#restsUntilMs = endedMs + restAfter(tookMs, REST_FACTOR);
    }
  }
}

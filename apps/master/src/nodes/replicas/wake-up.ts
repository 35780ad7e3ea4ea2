import type { Clock } from "@heddle/base/clock";

/** Calls back at the earliest of the times that were asked for. */
export class WakeUp {
  readonly #clock: Clock;
  readonly #onTime: () => void;
  #timer: NodeJS.Timeout | undefined;
  #dueMs = Number.POSITIVE_INFINITY;

  constructor(clock: Clock, onTime: () => void) {
    this.#clock = clock;
    this.#onTime = onTime;
  }

  close(): void {
    clearTimeout(this.#timer);
  }

  after(ms: number): void {
    const dueMs = this.#clock.monotonicMs() + ms;
    if (dueMs >= this.#dueMs) return;
    this.#dueMs = dueMs;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#dueMs = Number.POSITIVE_INFINITY;
      this.#onTime();
    }, ms);
    this.#timer.unref();
  }
}

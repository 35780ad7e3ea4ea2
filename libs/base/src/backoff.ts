import type { Random } from "./random.ts";

export interface BackoffOptions {
  readonly baseMs: number;
  readonly maxMs: number;
}

/**
 * Delays between attempts, in milliseconds: exponential with full jitter
 * (M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015).
 */
export class Backoff {
  readonly #options: BackoffOptions;
  readonly #random: Random;
  #attempt = 0;

  constructor(options: BackoffOptions, random: Random = Math.random) {
    this.#options = options;
    this.#random = random;
  }

  /** The delay before the next attempt; at least half of the step, so that retries never spin. */
  nextMs(): number {
    const { baseMs, maxMs } = this.#options;
    const stepMs = Math.min(maxMs, baseMs * 2 ** this.#attempt);
    this.#attempt = Math.min(this.#attempt + 1, 30);
    return stepMs / 2 + (stepMs / 2) * this.#random();
  }

  /** Restarts the delays from the base; call it after a success. */
  reset(): void {
    this.#attempt = 0;
  }
}

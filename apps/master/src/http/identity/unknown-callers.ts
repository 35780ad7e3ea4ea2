import { AppError, ERROR_TABLE, toAppError } from "@heddle/base/errors";

/** Anyone can make such calls, and each is an event that is kept: what is more is not answered 401. */
const MAX_A_SECOND = 100;

/**
 * Bounds how many calls of a second are denied for want of a valid key or token. Those beyond get
 * 429, which is counted and makes no event; calls with a valid key never get it here.
 */
export class UnknownCallers {
  readonly #nowMs: () => number;
  #second = 0;
  #count = 0;

  constructor(nowMs: () => number = Date.now) {
    this.#nowMs = nowMs;
  }

  /** What a call is answered whose caller was not found. */
  refusal(thrown: unknown): unknown {
    if (ERROR_TABLE[toAppError(thrown).code].http !== 401) return thrown;
    const second = Math.floor(this.#nowMs() / 1_000);
    if (second !== this.#second) [this.#second, this.#count] = [second, 0];
    if (++this.#count <= MAX_A_SECOND) return thrown;
    const message = `More than ${MAX_A_SECOND} calls of this second had no valid key. Try again in a second.`;
    return new AppError("rate_limit_exceeded", message, { retryAfterMs: 1_000, cause: thrown });
  }
}

import { AppError } from "@heddle/base/errors";

/** The running calls: their bound, and their end at shutdown. */
export class InFlight {
  readonly #maxCalls: number;
  readonly #calls = new Set<AbortController>();
  #onIdle: (() => void) | undefined;
  #closing = false;

  constructor(maxCalls: number) {
    this.#maxCalls = maxCalls;
  }

  get size(): number {
    return this.#calls.size;
  }

  get closing(): boolean {
    return this.#closing;
  }

  /** Registers a call; abort its controller to end it. Throws at the bound and during shutdown. */
  enter(): AbortController {
    if (this.#closing) throw shuttingDown();
    if (this.#calls.size >= this.#maxCalls) {
      const message = `This master serves ${this.#maxCalls} calls already. Try again shortly.`;
      throw new AppError("overloaded", message, { retryAfterMs: 1000 });
    }
    const call = new AbortController();
    this.#calls.add(call);
    return call;
  }

  leave(call: AbortController): void {
    this.#calls.delete(call);
    if (this.#calls.size === 0) this.#onIdle?.();
  }

  /** Admits no more calls, waits for the running ones, and aborts the rest after `graceMs`. */
  async close(graceMs: number): Promise<void> {
    this.#closing = true;
    await this.#idleWithin(graceMs);
    for (const call of this.#calls) call.abort(shuttingDown());
    await this.#idleWithin(1000);
  }

  #idleWithin(waitMs: number): Promise<void> {
    if (this.#calls.size === 0) return Promise.resolve();
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, waitMs);
      this.#onIdle = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}

/** The error of a call that is refused or aborted by this master's shutdown. */
export function shuttingDown(): AppError {
  const message = "This master is shutting down. Send the request to another one, or again later.";
  return new AppError("unavailable", message, { retryAfterMs: 1000 });
}

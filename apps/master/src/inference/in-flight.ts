import { AppError } from "@heddle/base/errors";
import type { MasterConfig } from "../config/config.ts";

/** Read at each use: they may change. */
type Bounds = Pick<MasterConfig, "maxCalls" | "maxReadingBytes">;

/** The running calls: their bounds in count and bytes, and their end at shutdown. */
export class InFlight {
  readonly #bounds: Bounds;
  /** Keyed by call: the bytes of what it asks. */
  readonly #calls = new Map<AbortController, number>();
  #bytes = 0;
  #onIdle: (() => void) | undefined;
  #closing = false;

  constructor(bounds: Bounds) {
    this.#bounds = bounds;
  }

  get size(): number {
    return this.#calls.size;
  }

  get closing(): boolean {
    return this.#closing;
  }

  /**
   * Registers a call whose request has that many bytes; abort its controller to end it. Throws at a
   * bound and during shutdown.
   */
  enter(bytes = 0): AbortController {
    if (this.#closing) throw shuttingDown();
    const { maxCalls } = this.#bounds;
    if (this.#calls.size >= maxCalls) throw full(`${maxCalls} calls`);
    const call = new AbortController();
    this.hold(call, bytes);
    return call;
  }

  /** Counts further bytes of the call. Throws at the bound, unless no other call has any. */
  hold(call: AbortController, bytes: number): void {
    const own = this.#calls.get(call) ?? 0;
    if (bytes > 0 && this.#bytes > own && this.#bytes + bytes > this.#bounds.maxReadingBytes) {
      throw full(`calls with ${this.#bytes} bytes`);
    }
    this.#calls.set(call, own + bytes);
    this.#bytes += bytes;
  }

  leave(call: AbortController): void {
    this.#bytes -= this.#calls.get(call) ?? 0;
    this.#calls.delete(call);
    if (this.#calls.size === 0) this.#onIdle?.();
  }

  /** Admits no more calls, waits for the running ones, and aborts the rest after `graceMs`. */
  async close(graceMs: number): Promise<void> {
    this.#closing = true;
    await this.#idleWithin(graceMs);
    for (const call of this.#calls.keys()) call.abort(shuttingDown());
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

function full(what: string): AppError {
  const message = `This master serves ${what} already. Try again shortly.`;
  return new AppError("overloaded", message, { retryAfterMs: 1000 });
}

/** The error of a call that is refused or aborted by this master's shutdown. */
export function shuttingDown(): AppError {
  const message = "This master is shutting down. Send the request to another one, or again later.";
  return new AppError("unavailable", message, { retryAfterMs: 1000 });
}

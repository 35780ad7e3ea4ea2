import { uptime } from "node:os";
import type { Clock } from "@heddle/base/clock";

/**
 * This worker's right to run tasks, for `leaseMs` from the renewal's request, by a clock that
 * advances while the machine sleeps. An answer that stayed unread in a stopped process extends
 * nothing.
 */
export class Lease {
  readonly #clock: Pick<Clock, "monotonicMs">;
  #leaseMs = 0;
  #expiresAtMs: number;
  #nextRequest = 1;
  /** When each unanswered request was sent. */
  readonly #asked = new Map<number, number>();

  /** `expiresAtMs`: the expiry of an earlier process of this worker. */
  constructor(clock: Pick<Clock, "monotonicMs">, expiresAtMs = Number.NEGATIVE_INFINITY) {
    this.#clock = clock;
    this.#expiresAtMs = expiresAtMs;
  }

  get isLive(): boolean {
    return this.#clock.monotonicMs() < this.#expiresAtMs;
  }

  get expiresAtMs(): number {
    return this.#expiresAtMs;
  }

  /** The time until the next renewal; short while the last request is unanswered. */
  get renewEveryMs(): number {
    const regularMs = Math.max(MIN_RENEW_MS, this.#leaseMs / RENEWALS_PER_LEASE);
    return this.#asked.size === 0 && this.isLive ? regularMs : Math.min(regularMs, ASK_AGAIN_MS);
  }

  /**
   * A master of this term gives leases of that length; requests to the one before no longer count.
   */
  begin(leaseMs: number): void {
    this.#leaseMs = leaseMs;
    this.#asked.clear();
  }

  /** Ends the lease now. */
  revoke(): void {
    this.#expiresAtMs = Number.NEGATIVE_INFINITY;
    this.#asked.clear();
  }

  /** The number of a new request, which is sent now. */
  ask(): number {
    const request = this.#nextRequest++;
    this.#asked.set(request, this.#clock.monotonicMs());
    for (const old of this.#asked.keys()) {
      if (this.#asked.size <= MAX_OPEN_REQUESTS) break;
      this.#asked.delete(old);
    }
    return request;
  }

  /** The answer to a request; one without a request in this session is ignored. */
  renew(request: number): void {
    const askedAtMs = this.#asked.get(request);
    if (askedAtMs === undefined) return;
    for (const old of this.#asked.keys()) if (old <= request) this.#asked.delete(old);
    this.#expiresAtMs = Math.max(this.#expiresAtMs, askedAtMs + this.#leaseMs);
  }
}

/**
 * After the last renewal a lease of 150 s has at least 140 s left. That covers two minutes of
 * partition and the search for a leader.
 */
const RENEWALS_PER_LEASE = 15;
const MIN_RENEW_MS = 50;
const ASK_AGAIN_MS = 1_000;
/** The most unanswered requests; older ones would be useless. */
const MAX_OPEN_REQUESTS = 16;

/** Time since the machine started, including sleep: CLOCK_BOOTTIME where known. */
export const bootClock: Pick<Clock, "monotonicMs"> = { monotonicMs: () => uptime() * 1000 };

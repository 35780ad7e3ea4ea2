import { uptime } from "node:os";
import type { Clock } from "@heddle/base/clock";

/**
 * This worker's right to run tasks. It holds for `leaseMs` from the moment at which the renewal was
 * asked for, not from its arrival: an answer that lay unread while the process was stopped extends
 * nothing. The clock must go on while the machine sleeps.
 */
export class Lease {
  readonly #clock: Pick<Clock, "monotonicMs">;
  #leaseMs = 0;
  #expiresAtMs: number;
  #nextRequest = 1;
  /** When each request that has no answer yet was sent. */
  readonly #asked = new Map<number, number>();

  /** `expiresAtMs`: up to when an earlier process of this worker held it. */
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

  /** When to ask for a renewal again; soon, where the last request has no answer yet. */
  get renewEveryMs(): number {
    const regularMs = Math.max(minRenewMs, this.#leaseMs / renewalsPerLease);
    return this.#asked.size === 0 && this.isLive ? regularMs : Math.min(regularMs, askAgainMs);
  }

  /** A master of this term gives leases of that length; requests to the one before count no more. */
  begin(leaseMs: number): void {
    this.#leaseMs = leaseMs;
    this.#asked.clear();
  }

  /** Ends it now, whatever is left of it. */
  revoke(): void {
    this.#expiresAtMs = Number.NEGATIVE_INFINITY;
    this.#asked.clear();
  }

  /** The number of a new request, which is sent now. */
  ask(): number {
    const request = this.#nextRequest++;
    this.#asked.set(request, this.#clock.monotonicMs());
    for (const old of this.#asked.keys()) {
      if (this.#asked.size <= maxOpenRequests) break;
      this.#asked.delete(old);
    }
    return request;
  }

  /** The answer to a request; one that was not asked in this session is passed over. */
  renew(request: number): void {
    const askedAtMs = this.#asked.get(request);
    if (askedAtMs === undefined) return;
    for (const old of this.#asked.keys()) if (old <= request) this.#asked.delete(old);
    this.#expiresAtMs = Math.max(this.#expiresAtMs, askedAtMs + this.#leaseMs);
  }
}

/**
 * What is left of a lease when its masters fall silent is what they may be silent for: of 150 s at
 * least 140 s, which two minutes of partition and the way back to a leader fit into.
 */
const renewalsPerLease = 15;
const minRenewMs = 50;
const askAgainMs = 1_000;
/** Requests that may be without an answer; older ones would renew nothing of use. */
const maxOpenRequests = 16;

/** Time since the machine started, the time that it slept included: CLOCK_BOOTTIME where known. */
export const bootClock: Pick<Clock, "monotonicMs"> = { monotonicMs: () => uptime() * 1000 };

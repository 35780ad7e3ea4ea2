import { Backoff } from "@heddle/base/backoff";
import type { Random } from "@heddle/base/random";

/** Consecutive failures that open the circuit. */
const THRESHOLD = 3;
const rest = { baseMs: 1_000, maxMs: 30_000 };

/**
 * Opens after consecutive failures and admits one probe after a growing backoff; its success closes
 * it (M. Nygard, "Release It!", 2007: Circuit Breaker).
 */
export class Circuit {
  readonly #backoff: Backoff;
  #failures = 0;
  #openUntilMs = 0;
  #probing = false;

  constructor(random: Random) {
    this.#backoff = new Backoff(rest, random);
  }

  /** Whether a request may be sent now. */
  allows(nowMs: number): boolean {
    if (this.#failures < THRESHOLD) return true;
    return nowMs >= this.#openUntilMs && !this.#probing;
  }

  /** When an open circuit may be probed; 0 if it is closed. */
  get opensAtMs(): number {
    return this.#failures < THRESHOLD ? 0 : this.#openUntilMs;
  }

  onSent(): void {
    if (this.#failures >= THRESHOLD) this.#probing = true;
  }

  /** The answer has started: the next request may be sent, but the count of failures stays. */
  onStarted(): void {
    this.#probing = false;
  }

  /** An answer was complete. */
  onSuccess(): void {
    this.#failures = 0;
    this.#backoff.reset();
  }

  /** The request says nothing about the replica: it was cancelled, or invalid. */
  onNeutral(): void {
    this.#probing = false;
  }

  onFailure(nowMs: number): void {
    this.#failures += 1;
    this.#probing = false;
    if (this.#failures >= THRESHOLD) this.#openUntilMs = nowMs + this.#backoff.nextMs();
  }
}

import { Backoff } from "@heddle/base/backoff";
import type { Random } from "@heddle/base/random";

/** Failures in a row that take a replica out. */
const threshold = 3;
const rest = { baseMs: 1_000, maxMs: 30_000 };

/**
 * Takes a replica out after failures in a row and lets one request probe it after a rest that grows;
 * the probe's success brings it back (M. Nygard, "Release It!", 2007: Circuit Breaker).
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
    if (this.#failures < threshold) return true;
    return nowMs >= this.#openUntilMs && !this.#probing;
  }

  /** When a replica that is out may be probed; 0 where it is not out. */
  get opensAtMs(): number {
    return this.#failures < threshold ? 0 : this.#openUntilMs;
  }

  onSent(): void {
    if (this.#failures >= threshold) this.#probing = true;
  }

  /** The answer has begun: the next request may follow, though nothing is forgiven yet. */
  onStarted(): void {
    this.#probing = false;
  }

  /** An answer was complete. */
  onSuccess(): void {
    this.#failures = 0;
    this.#backoff.reset();
  }

  /** The request told nothing about the replica: it was cancelled, or wrong in itself. */
  onNeutral(): void {
    this.#probing = false;
  }

  onFailure(nowMs: number): void {
    this.#failures += 1;
    this.#probing = false;
    if (this.#failures >= threshold) this.#openUntilMs = nowMs + this.#backoff.nextMs();
  }
}

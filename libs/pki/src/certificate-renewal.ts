import { Backoff } from "@heddle/base/backoff";
import { toAppError } from "@heddle/base/errors";
import type { Log } from "@heddle/observability/logger";
import { CLOCK_SKEW_MS } from "./certificate-authority.ts";
import { type TlsIdentity, type TlsMaterial, validityOf } from "./tls-identity.ts";

const retry = { baseMs: 500, maxMs: 60_000 };
/** The longest delay of a timer. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** Renews a node's certificate each time two thirds of its lifetime have passed. */
export class CertificateRenewal {
  readonly #identity: TlsIdentity;
  readonly #renew: () => Promise<TlsMaterial>;
  readonly #log: Log;
  readonly #backoff = new Backoff(retry);
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  /** `renew` obtains and stores the new certificate; it is retried until it succeeds. */
  constructor(identity: TlsIdentity, renew: () => Promise<TlsMaterial>, log: Log) {
    this.#identity = identity;
    this.#renew = renew;
    this.#log = log;
    this.#schedule(this.#untilRenewalMs());
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
  }

  #untilRenewalMs(): number {
    const { fromMs, untilMs } = validityOf(this.#identity.material.certificate);
    const issuedMs = fromMs + CLOCK_SKEW_MS;
    return issuedMs + ((untilMs - issuedMs) * 2) / 3 - Date.now();
  }

  #schedule(delayMs: number): void {
    if (this.#closed) return;
    this.#timer = setTimeout(() => void this.#attempt(), clamp(delayMs, 0, MAX_TIMER_MS));
    this.#timer.unref();
  }

  async #attempt(): Promise<void> {
    try {
      this.#identity.update(await this.#renew());
      this.#backoff.reset();
      const { untilMs } = validityOf(this.#identity.material.certificate);
      this.#log.info({ until: new Date(untilMs).toISOString() }, "the certificate was renewed");
      this.#schedule(this.#untilRenewalMs());
    } catch (error) {
      const { message } = toAppError(error);
      this.#log.warn({ error: message }, "the certificate could not be renewed yet, retrying");
      this.#schedule(this.#backoff.nextMs());
    }
  }
}

function clamp(value: number, least: number, most: number): number {
  return Math.min(most, Math.max(least, value));
}

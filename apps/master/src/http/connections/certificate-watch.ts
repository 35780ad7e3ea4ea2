import type { SecureContextOptions } from "node:tls";
import { toAppError } from "@heddle/base/errors";
import type { Log } from "@heddle/observability/logger";
import { ReadMetric } from "@heddle/observability/read-metric";
import type { OnApplicationShutdown } from "@nestjs/common";
import type { Registry } from "prom-client";
import type { CertificateFiles } from "../../config/config.ts";
import { MIN_TLS, readServerCertificate, type ServerCertificate } from "./server-certificate.ts";

/** How often the files are read. Events of file systems miss what Kubernetes or NFS replace. */
const READ_EVERY_MS = 5_000;
/** A certificate with less time left is warned of. */
const WARN_BEFORE_MS = 7 * 86_400_000;
const WARN_EVERY_MS = 86_400_000;

/** What the watch needs of a `tls.Server`. */
interface SecureServer {
  setSecureContext(options: SecureContextOptions): void;
}

interface WatchParts {
  readonly server: SecureServer;
  readonly files: CertificateFiles;
  readonly log: Log;
  readonly readEveryMs?: number | undefined;
}

/**
 * Has new connections use the certificate that its files hold now. A pair that is wrong, as one of
 * which only the first file is written yet, changes nothing and is read again.
 */
export class CertificateWatch implements OnApplicationShutdown {
  readonly #parts: WatchParts;
  readonly #timer: NodeJS.Timeout;
  #served: ServerCertificate | undefined;
  #fault = "";
  #warnedAtMs = Number.NEGATIVE_INFINITY;
  readonly counts = { changed: 0, refused: 0 };

  constructor(parts: WatchParts) {
    this.#parts = parts;
    this.#read();
    const everyMs = parts.readEveryMs ?? READ_EVERY_MS;
    this.#timer = setInterval(() => this.#read(), everyMs).unref();
  }

  /** When the certificate in use expires, in ms since 1970. */
  get untilMs(): number {
    return this.#served?.untilMs ?? 0;
  }

  onApplicationShutdown(): void {
    clearInterval(this.#timer);
  }

  #read(): void {
    const { server, files, log } = this.#parts;
    try {
      const read = readServerCertificate(files);
      if (read.cert !== this.#served?.cert || read.key !== this.#served.key) {
        server.setSecureContext({ cert: read.cert, key: read.key, minVersion: MIN_TLS });
        if (this.#served) {
          this.counts.changed++;
          log.info({ until: new Date(read.untilMs).toISOString() }, "HTTPS has a new certificate");
        }
        this.#served = read;
        this.#warnedAtMs = Number.NEGATIVE_INFINITY;
      }
      this.#fault = "";
    } catch (error) {
      this.#refuse(toAppError(error).message);
    }
    this.#warnOfExpiry();
  }

  #refuse(fault: string): void {
    if (fault === this.#fault) return;
    this.#fault = fault;
    this.counts.refused++;
    this.#parts.log.error({ fault }, "HTTPS keeps its certificate: its files are wrong");
  }

  #warnOfExpiry(): void {
    const nowMs = Date.now();
    const isDue = nowMs - this.#warnedAtMs >= WARN_EVERY_MS;
    if (!this.#served || !isDue || this.untilMs - nowMs > WARN_BEFORE_MS) return;
    this.#warnedAtMs = nowMs;
    const until = new Date(this.untilMs).toISOString();
    this.#parts.log.warn({ until }, "the certificate of HTTPS expires soon, or has expired");
  }
}

/** `heddle_https...` in /metrics. */
export function exposeCertificate(registry: Registry, watch: CertificateWatch): void {
  const figures = [
    [
      "expires_seconds",
      "gauge",
      "When the certificate of HTTPS expires, in seconds since 1970.",
      () => watch.untilMs / 1_000,
    ],
    ["changes_total", "counter", "Changes of the certificate in use.", () => watch.counts.changed],
    [
      "refused_total",
      "counter",
      "Changed files that do not belong together or cannot be read.",
      () => watch.counts.refused,
    ],
  ] as const;
  for (const [suffix, type, help, read] of figures) {
    const name = `heddle_https_certificate_${suffix}`;
    new ReadMetric(registry, { name, type, help }, () => [{ labels: {}, value: read() }]);
  }
}

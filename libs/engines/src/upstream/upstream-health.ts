import { Backoff } from "@heddle/base/backoff";
import { AppError, toAppError } from "@heddle/base/errors";

/** Failures in a row, of calls or probes, after which it takes no requests. */
const MAX_FAILURES = 3;
const PROBE_BACKOFF = { baseMs: 500, maxMs: 30_000 };

interface HealthOptions {
  /** Throws where no token is generated. */
  readonly probe: (signal: AbortSignal) => Promise<void>;
  /** The interval between checks of a server without calls. */
  readonly intervalMs: number;
  readonly onDown: (reason: AppError) => void;
  readonly onRecovered: () => void;
}

/**
 * Whether an upstream answers, by its calls, and by probes while there are none. One that fails is
 * probed with growing pauses until it generates again.
 */
export class UpstreamHealth {
  readonly #options: HealthOptions;
  readonly #closing = new AbortController();
  readonly #backoff = new Backoff(PROBE_BACKOFF);
  #failures = 0;
  #isUp = false;
  #isDoubted = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: HealthOptions) {
    this.#options = options;
  }

  /** The first probe; rejects with `unavailable`, as a later one may succeed. */
  async start(signal: AbortSignal): Promise<void> {
    try {
      await this.#options.probe(AbortSignal.any([signal, this.#closing.signal]));
    } catch (thrown) {
      if (signal.aborted) throw thrown;
      throw new AppError("unavailable", toAppError(thrown).message, { cause: thrown });
    }
    this.#isUp = true;
    this.#plan(this.#options.intervalMs);
  }

  close(): void {
    this.#closing.abort(new AppError("unavailable", "the engine was unloaded"));
    clearTimeout(this.#timer);
  }

  onSuccess(): void {
    this.#failures = 0;
    this.#backoff.reset();
    if (this.#isUp) this.#plan(this.#options.intervalMs);
    else this.#recover();
  }

  /** Counts what is the upstream's fault, and no request's. */
  onFailure(reason: AppError): void {
    if (reason.code === "answer_failed") this.#doubt();
    if (reason.code !== "engine_failed") return;
    this.#failures++;
    if (!this.#isUp) return;
    this.#isUp = this.#failures < MAX_FAILURES;
    if (!this.#isUp) this.#options.onDown(reason);
    this.#plan(this.#backoff.nextMs());
  }

  /** Brings the next probe forward, once: it decides. */
  #doubt(): void {
    if (!this.#isUp || this.#isDoubted) return;
    this.#plan(PROBE_BACKOFF.baseMs);
    this.#isDoubted = true;
  }

  #recover(): void {
    this.#isUp = true;
    this.#options.onRecovered();
    this.#plan(this.#options.intervalMs);
  }

  #plan(afterMs: number): void {
    clearTimeout(this.#timer);
    this.#isDoubted = false;
    if (this.#closing.signal.aborted) return;
    this.#timer = setTimeout(() => void this.#check(), afterMs);
    this.#timer.unref();
  }

  async #check(): Promise<void> {
    try {
      await this.#options.probe(this.#closing.signal);
    } catch (thrown) {
      if (this.#closing.signal.aborted) return;
      // A probe that is refused is a failure as well: no request would be taken.
      const { message, cause } = toAppError(thrown);
      this.onFailure(new AppError("engine_failed", message, { cause }));
      if (!this.#isUp) this.#plan(this.#backoff.nextMs());
      return;
    }
    this.onSuccess();
  }
}

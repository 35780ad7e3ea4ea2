import { AppError } from "@heddle/base/errors";
import type { ControlPlane } from "../ports.ts";

/** Watchers and long-polls at once on one master. */
const MAX_WAITING = 10_000;

/** Wakes whoever waits for the replicated state to go on. One listener for all of them. */
export class StateChanges {
  readonly #waiting = new Set<() => void>();
  readonly #unsubscribe: () => void;
  #queued = false;

  constructor(control: ControlPlane) {
    this.#unsubscribe = control.onApplied(() => this.#queue());
  }

  /** Resolves at the next change, when the time is over, or with the signal. */
  next(timeoutMs: number, signal: AbortSignal): Promise<void> {
    if (signal.aborted || timeoutMs <= 0) return Promise.resolve();
    if (this.#waiting.size >= MAX_WAITING) {
      const message = `${MAX_WAITING} calls wait for changes on this master.`;
      throw new AppError("overloaded", message, { retryAfterMs: 1_000 });
    }
    return new Promise((resolve) => {
      const wake = (): void => {
        clearTimeout(timer);
        signal.removeEventListener("abort", wake);
        this.#waiting.delete(wake);
        resolve();
      };
      const timer = setTimeout(wake, timeoutMs);
      signal.addEventListener("abort", wake);
      this.#waiting.add(wake);
    });
  }

  close(): void {
    this.#unsubscribe();
    this.#wake();
  }

  /** Many commands are applied in one turn: whoever waits looks once. */
  #queue(): void {
    if (this.#queued) return;
    this.#queued = true;
    setImmediate(() => {
      this.#queued = false;
      this.#wake();
    });
  }

  #wake(): void {
    for (const wake of [...this.#waiting]) wake();
  }
}

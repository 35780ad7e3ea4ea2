import { OncePerTurn } from "@heddle/base/async/once-per-turn";
import { AppError } from "@heddle/base/errors";
import { Inject, type OnModuleDestroy } from "@nestjs/common";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import { ProgressBook } from "../../nodes/progress/progress-book.ts";

/** Watchers and long-polls at once on one master. */
const MAX_WAITING = 10_000;
const PROGRESS_PAUSE_MS = 200;

/**
 * Wakes waiters on changes of the replicated state or of jobs' progress, with one listener for all.
 */
export class StateChanges implements OnModuleDestroy {
  readonly #waiting = new Set<() => void>();
  readonly #unsubscribe: () => void;
  /** Many commands are applied in one turn: waiters wake once. */
  readonly #nextWake = new OncePerTurn(() => this.#wake());
  #progressTimer: NodeJS.Timeout | undefined;

  constructor(
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(ProgressBook) progress: ProgressBook,
  ) {
    const unsubscribe = [
      control.onApplied(() => this.#nextWake.request()),
      progress.onChange(() => this.#queueProgress()),
    ];
    this.#unsubscribe = () => {
      for (const each of unsubscribe) each();
    };
  }

  /** Resolves at the next change, the timeout, or the signal. */
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

  /** Waiting calls are answered before the drain. */
  onModuleDestroy(): void {
    this.#unsubscribe();
    clearTimeout(this.#progressTimer);
    this.#wake();
  }

  /** Progress arrives many times a second: waiters wake a few times a second at most. */
  #queueProgress(): void {
    this.#progressTimer ??= setTimeout(() => {
      this.#progressTimer = undefined;
      this.#wake();
    }, PROGRESS_PAUSE_MS).unref();
  }

  #wake(): void {
    for (const wake of [...this.#waiting]) wake();
  }
}

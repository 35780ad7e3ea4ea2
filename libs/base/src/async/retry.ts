import { Backoff, type BackoffOptions } from "../backoff.ts";
import { abortableDelay } from "./abortable-delay.ts";

export interface RetryOptions {
  /** The pauses between attempts; equal ones if `baseMs` is `maxMs`, except for the jitter. */
  readonly backoff: BackoffOptions;
  /**
   * Ends the attempts and the pauses between them at once: `retry` then rejects with its reason.
   */
  readonly signal?: AbortSignal | undefined;
  /** Milliseconds from the first failure on, after which a failure is final. */
  readonly deadlineMs?: number | undefined;
  readonly maxTries?: number | undefined;
  /** Whether a later attempt may succeed; by default every error is transient. */
  readonly isPassing?: ((error: unknown) => boolean) | undefined;
  /** Called before each pause, with the number of attempts so far. */
  readonly onRetry?: ((error: unknown, tries: number) => void) | undefined;
  /** Replaces the pause after an error. */
  readonly pauseMs?: ((error: unknown, backoffMs: number) => number) | undefined;
  /** Replaces the last error once the deadline has passed. */
  readonly lateError?: ((error: unknown) => unknown) | undefined;
}

/** Calls `work` until it succeeds, and resolves with its result; rejects with its last error. */
export async function retry<T>(work: () => Promise<T>, options: RetryOptions): Promise<T> {
  const { signal, maxTries = Infinity, isPassing = () => true } = options;
  const backoff = new Backoff(options.backoff);
  let sinceMs: number | undefined;
  for (let tries = 1; ; tries++) {
    signal?.throwIfAborted();
    try {
      return await work();
    } catch (error) {
      signal?.throwIfAborted();
      sinceMs ??= performance.now();
      if (!isPassing(error) || tries >= maxTries) throw error;
      const leftMs = (options.deadlineMs ?? Infinity) - (performance.now() - sinceMs);
      if (leftMs <= 0) throw options.lateError?.(error) ?? error;
      options.onRetry?.(error, tries);
      const backoffMs = backoff.nextMs();
      const pauseMs = options.pauseMs?.(error, backoffMs) ?? backoffMs;
      await abortableDelay(Math.min(pauseMs, leftMs), signal);
    }
  }
}

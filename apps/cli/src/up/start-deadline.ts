import { abortableDelay } from "@heddle/base/async/abortable-delay";
import { AppError } from "@heddle/base/errors";

/** The inputs of the watch over a start. */
export interface WatchedStart {
  readonly started: Promise<void>;
  /** Rises with each process that becomes ready. */
  readonly readyCount: () => number;
  /** The number of processes. */
  readonly total: number;
  /** The longest time without another ready process. */
  readonly timeoutMs: number;
  /** Cancels the wait. */
  readonly signal: AbortSignal;
}

/**
 * Resolves when all processes are ready; rejects with `deadline_exceeded` after a time without
 * another ready process. The whole start has no fixed limit, as masters join one after the other
 * and machines differ in speed.
 */
export async function untilStarted(start: WatchedStart): Promise<void> {
  const { started, timeoutMs, signal } = start;
  const over = new AbortController();
  const stopped = untilAborted(AbortSignal.any([signal, over.signal])).then(() => {
    if (signal.aborted && !over.signal.aborted) throw signal.reason;
  });
  const late = watch(start, over.signal).then((isLate) => {
    if (!isLate) return;
    const message = `No other process became ready within ${timeoutMs / 1000} s: ${start.readyCount()} of ${start.total} are. Run again with --verbose to see why.`;
    throw new AppError("deadline_exceeded", message);
  });
  try {
    await Promise.race([started, late, stopped]);
  } finally {
    over.abort();
    await Promise.allSettled([late, stopped]);
  }
}

/** True if the time has passed, false if the watch was cancelled. */
async function watch({ readyCount, timeoutMs }: WatchedStart, over: AbortSignal): Promise<boolean> {
  for (let before = -1, now = readyCount(); now > before; now = readyCount()) {
    before = now;
    await abortableDelay(timeoutMs, over);
    if (over.aborted) return false;
  }
  return true;
}

export function untilAborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}

import { setTimeout as sleep } from "node:timers/promises";
import { AppError } from "@heddle/base/errors";

/** What a start is watched by. */
export interface WatchedStart {
  readonly started: Promise<void>;
  /** Rises with each process that is ready. */
  readonly readyCount: () => number;
  /** How many there are to be. */
  readonly total: number;
  /** The longest that none gets ready. */
  readonly patienceMs: number;
  /** Ends the wait. */
  readonly signal: AbortSignal;
}

/**
 * Resolves when all is started; rejects with `deadline_exceeded` when for so long no further process
 * has got ready. Masters join a group one after the other, so many of them take longer than one, and a
 * slow machine longer than a quick one: as long as it goes on, it is waited for.
 */
export async function untilStarted(start: WatchedStart): Promise<void> {
  const { started, patienceMs, signal } = start;
  const over = new AbortController();
  const stopped = untilAborted(AbortSignal.any([signal, over.signal])).then(() => {
    if (signal.aborted && !over.signal.aborted) throw signal.reason;
  });
  const late = watch(start, over.signal).then((isLate) => {
    if (!isLate) return;
    const message = `No further process got ready within ${patienceMs / 1000} s: ${start.readyCount()} of ${start.total} are. Run again with --verbose to see why.`;
    throw new AppError("deadline_exceeded", message);
  });
  try {
    await Promise.race([started, late, stopped]);
  } finally {
    over.abort();
    await Promise.allSettled([late, stopped]);
  }
}

/** True when the patience is over, false when the watch is. */
async function watch(
  { readyCount, patienceMs }: WatchedStart,
  over: AbortSignal,
): Promise<boolean> {
  for (let before = -1, now = readyCount(); now > before; now = readyCount()) {
    before = now;
    await sleep(patienceMs, undefined, { signal: over }).catch(() => undefined);
    if (over.aborted) return false;
  }
  return true;
}

function untilAborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}

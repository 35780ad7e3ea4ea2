import { setTimeout as delay } from "node:timers/promises";

/** A machine that is later than this with a timer is blocked: what took too long shows nothing. */
const LATE_MS = 100;
const TICK_MS = 10;

/**
 * Tries what has a bound of wall time until it has held four times. It may fail once; failures while
 * the machine was blocked do not count. Tests of this function script how late the machine is.
 */
export async function atLeastFourOfFive(
  holds: () => Promise<boolean>,
  latenessMs: (work: Promise<unknown>) => Promise<number> = latestTimerMs,
): Promise<void> {
  let failures = 0;
  for (let times = 0; times < 4; ) {
    const work = holds();
    const [isHeld, lateMs] = await Promise.all([work, latenessMs(work)]);
    if (isHeld) times++;
    else if (lateMs < LATE_MS && ++failures > 1) {
      throw new Error(`it held in only ${times} of ${times + failures} tries`);
    }
  }
}

/** How late the latest timer was while the work ran. */
async function latestTimerMs(work: Promise<unknown>): Promise<number> {
  let hasEnded = false;
  const end = () => {
    hasEnded = true;
  };
  work.then(end, end);
  let latestMs = 0;
  while (!hasEnded) {
    const sinceMs = performance.now();
    await delay(TICK_MS);
    latestMs = Math.max(latestMs, performance.now() - sinceMs - TICK_MS);
  }
  return latestMs;
}

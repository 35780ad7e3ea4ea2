/** A running source of ticks. */
export interface Ticks {
  /** From now on calls back once per this many intervals, with the ticks of all of them together. */
  wakeEvery(intervals: number): void;
  /** Calls back at once, where at least one interval has passed. */
  catchUp(): void;
  stop(): void;
}

/** Calls back with the whole intervals that have passed; late ones come together. */
export function startTicks(intervalMs: number, onTicks: (ticks: number) => void): Ticks {
  let lastMs = performance.now();
  let every = 1;
  let isStopped = false;
  const wake = (): void => {
    const ticks = Math.floor((performance.now() - lastMs) / intervalMs);
    if (ticks === 0) return;
    lastMs += ticks * intervalMs;
    onTicks(ticks);
  };
  let timer = setInterval(wake, intervalMs);
  return {
    wakeEvery: (intervals) => {
      if (intervals === every || isStopped) return;
      every = intervals;
      clearInterval(timer);
      timer = setInterval(wake, intervalMs * intervals);
    },
    catchUp: () => {
      if (!isStopped) wake();
    },
    stop: () => {
      isStopped = true;
      clearInterval(timer);
    },
  };
}

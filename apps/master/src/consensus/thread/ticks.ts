/** A running source of ticks. */
export interface Ticks {
  stop(): void;
}

/** Calls back with the whole intervals that have passed; late ones come together. */
export function startTicks(intervalMs: number, onTicks: (ticks: number) => void): Ticks {
  let lastMs = performance.now();
  const timer = setInterval(() => {
    const ticks = Math.floor((performance.now() - lastMs) / intervalMs);
    if (ticks === 0) return;
    lastMs += ticks * intervalMs;
    onTicks(ticks);
  }, intervalMs);
  return { stop: () => clearInterval(timer) };
}

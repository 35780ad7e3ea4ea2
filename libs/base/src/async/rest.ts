/** The longest rest. A run in which the process was paused took no time from other work. */
const MAX_REST_MS = 5_000;

/** How long work rests after a run of that duration; with a factor of 1 it uses half of the time. */
export function restAfter(tookMs: number, factor = 1): number {
  return Math.min(MAX_REST_MS, tookMs * factor);
}

/** The priorities of inference calls, lowest first. */
export const CALL_PRIORITIES = ["batch", "normal", "interactive"] as const;

export type CallPriority = (typeof CALL_PRIORITIES)[number];

/** The distance of two priorities in the numbers that queues compare. */
const STEP = 1_000;
const LOWEST = -STEP;
const HIGHEST = STEP;
/** A call that waits as long counts as one priority higher, so that a lower one always gets its turn. */
const AGING_MS = 30_000;

/** The number that queues compare; larger goes first. `later`, 0 to 100, orders within a priority. */
export function priorityNumber(priority: CallPriority, later = 0): number {
  return STEP * (CALL_PRIORITIES.indexOf(priority) - 1) - later;
}

/** The priority of a number, also of one that has aged. */
export function priorityOf(number: number): CallPriority {
  const index = Math.ceil((number - LOWEST) / STEP);
  return CALL_PRIORITIES[Math.min(Math.max(0, index), CALL_PRIORITIES.length - 1)] ?? "normal";
}

/** What a call counts as after a wait. */
export function agedPriority(number: number, waitedMs: number): number {
  const promotions = Math.floor(Math.max(0, waitedMs) / AGING_MS);
  return Math.max(number, Math.min(HIGHEST, number + STEP * promotions));
}

/** Whether one number is of a higher priority than the other, and not only earlier within it. */
export function outranks(number: number, other: number): boolean {
  return number >= other + STEP;
}

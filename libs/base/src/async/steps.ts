import { setImmediate as nextTurn } from "node:timers/promises";

/** How long steps may hold the event loop before it has a turn. */
export const TURN_MS = 10;
/** Items of small work in one step. */
export const STEP_ITEMS = 16;

/** Work in steps. Between two steps the caller may do other work. */
export type Steps<T> = Generator<void, T>;

/** Runs all steps at once and returns the result. */
export function runToEnd<T>(steps: Steps<T>): T {
  for (;;) {
    const { done, value } = steps.next();
    if (done) return value;
  }
}

/** Runs steps to their end and gives the event loop a turn every TURN_MS. */
export async function runInTurns<T>(make: () => Steps<T>): Promise<T> {
  const steps = make();
  for (;;) {
    const untilMs = performance.now() + TURN_MS;
    do {
      const { done, value } = steps.next();
      if (done) return value;
    } while (performance.now() < untilMs);
    await nextTurn();
  }
}

/** Does the work for each item, `size` items a step. The items may change between two steps. */
export function* forEachInSteps<Item>(
  items: Iterable<Item>,
  work: (item: Item) => void,
  size = STEP_ITEMS,
): Steps<void> {
  let left = size;
  for (const item of items) {
    work(item);
    if (--left > 0) continue;
    left = size;
    yield;
  }
}

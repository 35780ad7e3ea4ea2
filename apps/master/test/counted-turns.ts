import { setImmediate as nextTurn } from "node:timers/promises";
import { onTestFinished, vi } from "vitest";

/** Ends a turn of work in steps after each step: every reading of the clock finds its time used up. */
export function endTurnsAfterEachStep(): void {
  let nowMs = 0;
  const clock = vi.spyOn(performance, "now").mockImplementation(() => (nowMs += 1_000));
  onTestFinished(() => clock.mockRestore());
}

/** Counts what work reads in each turn of the event loop. */
export class TurnReads {
  longest = 0;
  all = 0;
  #inTurn = 0;

  count(): void {
    this.all++;
    this.longest = Math.max(this.longest, ++this.#inTurn);
  }

  /** The object, with each read of the field counted. */
  counted<T extends object>(object: T, field: keyof T): T {
    const value = object[field];
    const get = () => {
      this.count();
      return value;
    };
    return Object.defineProperty(object, field, { get, enumerable: true });
  }

  /** Waits for the work, and begins to count again with each turn. */
  async during<T>(work: () => Promise<T>): Promise<T> {
    this.longest = this.all = this.#inTurn = 0;
    let isEnded = false;
    const over = work().finally(() => (isEnded = true));
    while (!isEnded) {
      await nextTurn();
      this.#inTurn = 0;
    }
    return over;
  }
}

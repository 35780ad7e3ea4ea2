import { setImmediate as nextTurn } from "node:timers/promises";
import { SerialQueue } from "@heddle/base/async/serial-queue";

const turns = new SerialQueue();

/**
 * Starts a process in a turn of the event loop of its own: each start blocks the loop for a fork. The
 * result is that of `start`, which must add its listeners at once.
 */
export async function inOwnTurn<Result>(start: () => Promise<Result>): Promise<Result> {
  // In an object, so that the next start does not wait for the result.
  const { result } = await turns.run(async () => {
    await nextTurn();
    return { result: start() };
  });
  return result;
}

import { toAppError } from "@heddle/base/errors";

/** Tries of a part of a call whose worker is lost: nothing of the answer was sent. */
const MAX_TRIES = 3;

/** Repeats a part of a call while its worker is lost, and `mayRepeat` permits it. */
export async function repeatLost<T>(
  signal: AbortSignal,
  work: () => Promise<T>,
  mayRepeat: () => boolean = () => true,
): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await work();
    } catch (thrown) {
      const failure = toAppError(thrown);
      const isLost = failure.code === "worker_lost" || failure.code === "engine_failed";
      if (!isLost || tries >= MAX_TRIES || signal.aborted || !mayRepeat()) throw failure;
    }
  }
}

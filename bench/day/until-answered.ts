import { setTimeout as sleep } from "node:timers/promises";
import { HeddleError } from "@heddle/client/errors";

const PAUSE_MS = 1_000;

/** Tries again while the cluster is unreachable or busy; a refusal (4xx but 408, 409 and 429) is final. */
export async function untilAnswered<T>(
  tries: number,
  call: () => Promise<T>,
  onFailure: (error: Error) => void = () => {},
): Promise<T> {
  for (let left = tries - 1; ; left--) {
    try {
      return await call();
    } catch (thrown) {
      const error = thrown as Error;
      onFailure(error);
      if (left === 0 || isRefusal(error)) throw error;
      await sleep(PAUSE_MS);
    }
  }
}

function isRefusal(error: Error): boolean {
  const status = error instanceof HeddleError ? (error.status ?? 0) : 0;
  return status >= 400 && status < 500 && ![408, 409, 429].includes(status);
}

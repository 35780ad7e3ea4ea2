import { setTimeout as delay } from "node:timers/promises";

/** Longer than any loaded machine needs. */
const TIMEOUT_MS = 100_000;
const MAX_PAUSE_MS = 50;

/** Polls until the condition holds; rejects with its description on timeout. */
export async function eventually(
  condition: () => boolean | Promise<boolean>,
  what: string | (() => string) = String(condition),
  timeoutMs = TIMEOUT_MS,
): Promise<void> {
  const endMs = performance.now() + timeoutMs;
  for (let pauseMs = 5; !(await condition()); pauseMs = Math.min(pauseMs * 2, MAX_PAUSE_MS)) {
    if (performance.now() > endMs) {
      const text = typeof what === "string" ? what : what();
      throw new Error(`not within ${timeoutMs} ms: ${text}`);
    }
    await delay(pauseMs);
  }
}

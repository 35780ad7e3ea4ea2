import { setTimeout as delay } from "node:timers/promises";

/** Polls until the condition holds; rejects with its description. */
export async function until(
  what: string,
  condition: () => boolean | Promise<boolean>,
  timeoutMs = 15_000,
): Promise<void> {
  const end = performance.now() + timeoutMs;
  while (!(await condition())) {
    if (performance.now() > end) throw new Error(`not within ${timeoutMs} ms: ${what}`);
    await delay(10);
  }
}

import { setTimeout as delay } from "node:timers/promises";
import { revokeLease } from "@heddle/node-agent/lease-guard-record";

const POLL_MS = 50;

/** A worker that may have been killed while its tasks ran. */
interface EndedWorker {
  readonly name: string;
  readonly dataDirectory: string;
}

/**
 * Ends the tasks of killed workers before their leases expire. Resolves with the workers of which
 * tasks may still run after the time.
 */
export async function endLeftTasks(
  workers: readonly EndedWorker[],
  withinMs: number,
): Promise<EndedWorker[]> {
  const giveUpAtMs = performance.now() + withinMs;
  const withGuard = (of: readonly EndedWorker[]) =>
    of.filter(({ dataDirectory }) => revokeLease(dataDirectory));
  let left = withGuard(workers);
  while (left.length > 0 && performance.now() < giveUpAtMs) {
    await delay(POLL_MS);
    left = withGuard(left);
  }
  return left;
}

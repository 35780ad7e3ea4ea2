import { setTimeout as delay } from "node:timers/promises";

/** File operations that take longer count as hung. */
const HUNG_MS = 1_000;
const POLL_MS = 10;

/**
 * Exits with the code. A normal exit joins the threads of Node's pool, so a hung file operation
 * would block it forever: the process is killed instead.
 */
export async function endProcess(code: number): Promise<never> {
  const endMs = performance.now() + HUNG_MS;
  while (hasFileOperations()) {
    if (performance.now() > endMs) process.kill(process.pid, "SIGKILL");
    await delay(POLL_MS);
  }
  process.exit(code);
}

function hasFileOperations(): boolean {
  return process.getActiveResourcesInfo().some((name) => name.startsWith("FSReq"));
}

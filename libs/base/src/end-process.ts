import { setTimeout as delay } from "node:timers/promises";

/** File operations end within this time, or count as hung. */
const HUNG_MS = 1_000;
const POLL_MS = 10;

/**
 * Exits with the code. An ordinary exit joins the threads of Node's pool, so a process with a hung
 * file operation would wait for ever: it is killed instead.
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

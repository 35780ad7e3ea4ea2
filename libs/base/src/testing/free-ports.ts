import { createServer } from "node:net";

/** Below the range from which systems give ports to outgoing connections, which could take one. */
const LOWEST = 10_000;
const HIGHEST = 30_000;

/**
 * A port of loopback that nobody listens on, for a process that must come back to it: unlike port 0
 * it is not given to somebody's outgoing connection while that process is gone.
 */
export function freePort(): Promise<number> {
  return freePorts([0]);
}

/** A port such that it and those at the given distances from it are free. */
export async function freePorts(offsets: readonly number[]): Promise<number> {
  const widest = Math.max(...offsets);
  for (;;) {
    const first = LOWEST + Math.floor(Math.random() * (HIGHEST - LOWEST - widest));
    const free = await Promise.all(offsets.map((offset) => isFree(first + offset)));
    if (free.every(Boolean)) return first;
  }
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer().once("error", () => resolve(false));
    server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
  });
}

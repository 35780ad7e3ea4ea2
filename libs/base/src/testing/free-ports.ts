import { createServer } from "node:net";

/** Below the ephemeral port range, from which an outgoing connection could take one. */
const LOWEST = 10_000;
const HIGHEST = 30_000;
/** Browsers and `fetch` refuse it. */
const UNSAFE = 10_080;

/**
 * A free loopback port for a process that must restart on it. Unlike port 0, it is not assigned to
 * an outgoing connection while that process is down.
 */
export function freePort(): Promise<number> {
  return freePorts([0]);
}

/** A port such that it and those at the given distances from it are free. */
export async function freePorts(offsets: readonly number[]): Promise<number> {
  const widest = Math.max(...offsets);
  for (;;) {
    const first = LOWEST + Math.floor(Math.random() * (HIGHEST - LOWEST - widest));
    const ports = offsets.map((offset) => first + offset);
    const free = await Promise.all(ports.map(isFree));
    if (free.every(Boolean)) return first;
  }
}

function isFree(port: number): Promise<boolean> {
  if (port === UNSAFE) return Promise.resolve(false);
  return new Promise((resolve) => {
    const server = createServer().once("error", () => resolve(false));
    server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
  });
}

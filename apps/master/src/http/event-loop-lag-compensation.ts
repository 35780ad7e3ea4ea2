import type { Server } from "node:http";
import type { HttpLimits } from "./fastify-server.ts";

const TICK_MS = 100;
/** The most that is forgiven, and how long after the last stall. */
const MAX_FORGIVEN_MS = 60_000;

/**
 * Keeps the limits against slow clients from those whom this process kept waiting. Node measures
 * them on the clock, and looks before it reads: after the event loop stood still, what a client had
 * sent in time lies unread, and it would be told that its request took too long. So the time in which
 * the loop stood still comes on top.
 */
export function compensateTimeoutsForEventLoopLag(
  server: Server,
  { headersTimeoutMs, requestTimeoutMs }: Pick<HttpLimits, "headersTimeoutMs" | "requestTimeoutMs">,
): void {
  let dueMs = performance.now() + TICK_MS;
  let stalledMs = 0;
  let forgottenAtMs = 0;
  const tick = (): void => {
    const nowMs = performance.now();
    if (nowMs > forgottenAtMs) stalledMs = 0;
    const lateMs = nowMs - dueMs;
    if (lateMs > TICK_MS / 10) {
      stalledMs += lateMs;
      forgottenAtMs = nowMs + MAX_FORGIVEN_MS;
    }
    dueMs = nowMs + TICK_MS;
  };
  const timer = setInterval(tick, TICK_MS).unref();
  server.once("close", () => clearInterval(timer));
  // Whether this timer or Node's look comes first after a stall is open: what is due counts already.
  const allowanceMs = (): number =>
    Math.min(MAX_FORGIVEN_MS, stalledMs + Math.max(0, performance.now() - dueMs));
  const define = (name: "headersTimeout" | "requestTimeout", limitMs: number): void => {
    Object.defineProperty(server, name, { get: () => Math.ceil(limitMs + allowanceMs()) });
  };
  define("headersTimeout", headersTimeoutMs);
  define("requestTimeout", requestTimeoutMs);
}

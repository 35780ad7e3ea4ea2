import type { Server } from "node:http";
import type { FixedTimes } from "../../config/config.ts";

const TICK_MS = 100;
/** The maximum compensation, and how long after the last stall it applies. */
const MAX_FORGIVEN_MS = 60_000;

/**
 * Extends the limits against slow clients by the time in which this process was stalled. Node
 * checks them before it reads, so that a request which arrived in time would get a timeout after a
 * stall.
 */
export function compensateTimeoutsForEventLoopLag(
  server: Server,
  { headersTimeoutMs, requestTimeoutMs }: Pick<FixedTimes, "headersTimeoutMs" | "requestTimeoutMs">,
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
  // After a stall either this timer or Node's check may run first, so overdue time counts already.
  const allowanceMs = (): number =>
    Math.min(MAX_FORGIVEN_MS, stalledMs + Math.max(0, performance.now() - dueMs));
  const define = (name: "headersTimeout" | "requestTimeout", limitMs: number): void => {
    Object.defineProperty(server, name, { get: () => Math.ceil(limitMs + allowanceMs()) });
  };
  define("headersTimeout", headersTimeoutMs);
  define("requestTimeout", requestTimeoutMs);
}

import type { CallWait } from "./dispatch/inference-port.ts";

/** The headers of a call that has waited in this master's queue. */
export function waitHeaders({ firstPosition, waitedMs }: CallWait): Record<string, string> {
  if (firstPosition === undefined) return {};
  return {
    "x-heddle-queue-position": String(firstPosition),
    "x-heddle-queued-ms": String(waitedMs),
  };
}

/** A comment, which clients ignore; undefined once the call has its replica. */
export function waitComment({ view }: CallWait): string | undefined {
  if (view === undefined) return undefined;
  const { state, position, waiting, waitedMs, detail, pulledBytes, totalBytes } = view;
  const bytes = totalBytes ? { pulled_bytes: pulledBytes, total_bytes: totalBytes } : {};
  const progress = { state, position, waiting, waited_ms: waitedMs, detail, ...bytes };
  return `heddle.progress ${JSON.stringify(progress)}`;
}

import { setInterval } from "node:timers/promises";
import type { ApiOperation } from "@heddle/contracts/api/operation";
import type { FastifyReply } from "fastify";
import type { Caller } from "./caller.ts";

/** Whether an answer may have no end: a stream that is read, or one of a plugin. */
export function mayBeEndless({ method, replies }: Pick<ApiOperation, "method" | "replies">) {
  const contents = Object.values(replies);
  if (contents.length === 0) return true;
  return method === "GET" && contents.some((content) => "text/event-stream" in content);
}

/**
 * Ends a running answer when its caller may no longer make the call: its key or token was revoked,
 * or its roles changed. The client resumes, and gets what it may.
 */
export async function endWithRights(
  { raw }: FastifyReply,
  caller: Caller,
  again: () => Promise<Caller>,
  everyMs: number,
): Promise<void> {
  if (raw.destroyed) return;
  const gone = new AbortController();
  raw.once("close", () => gone.abort());
  const ticks = setInterval(everyMs, undefined, { ref: false, signal: gone.signal });
  try {
    for await (const _ of ticks) {
      if (!(await again()).grants.equals(caller.grants)) break;
    }
  } catch {
    // The answer has ended, or its caller is refused.
  }
  raw.destroy();
}

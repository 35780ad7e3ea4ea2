import type { FastifyReply, FastifyRequest } from "fastify";

/** How long a browser may cache the answer to a preflight. */
const MAX_AGE_SECONDS = 600;
const METHODS = "GET, POST, PUT, PATCH, DELETE";
/** Response headers that a page's script may read beyond the default ones. */
const EXPOSED =
  "x-request-id, request-id, x-should-retry, retry-after, retry-after-ms, etag, x-heddle-node, x-heddle-queue-position, x-heddle-queued-ms, x-ratelimit-limit-requests, x-ratelimit-limit-tokens, x-ratelimit-remaining-requests, x-ratelimit-remaining-tokens, x-ratelimit-reset-requests, x-ratelimit-reset-tokens";

/**
 * Lets scripts of the listed origins read answers. Returns true for a preflight, which it has
 * answered. Cookies are never allowed, so `*` exposes nothing without a key.
 */
export function answerCors(
  { method, headers }: FastifyRequest,
  reply: FastifyReply,
  origins: readonly string[],
): boolean {
  const { origin } = headers;
  if (origin === undefined || origins.length === 0) return false;
  const { raw } = reply;
  raw.setHeader("vary", "origin");
  const isAllowed = origins.includes("*") || origins.includes(origin);
  if (!isAllowed) return false;
  // On the raw response: streams write their own head.
  raw.setHeader("access-control-allow-origin", origins.includes("*") ? "*" : origin);
  raw.setHeader("access-control-expose-headers", EXPOSED);
  const isPreflight = method === "OPTIONS" && headers["access-control-request-method"];
  if (!isPreflight) return false;
  raw.setHeader("access-control-allow-methods", METHODS);
  const asked = headers["access-control-request-headers"] ?? "authorization, content-type";
  raw.setHeader("access-control-allow-headers", asked);
  raw.setHeader("access-control-max-age", MAX_AGE_SECONDS);
  reply.code(204).send();
  return true;
}

import { randomBytes } from "node:crypto";
import type { IncomingMessage } from "node:http";

/** What a client's own id may look like to be echoed: nothing that could break a header or a log. */
const SAFE_ID = /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/;

const processPart = randomBytes(9).toString("base64url").replace(/[-_]/g, "0");
let counter = 0;

/** The client's `x-request-id` where it is safe to repeat, or a new one, unique over processes. */
export function requestIdOf(request: IncomingMessage): string {
  const given = request.headers["x-request-id"];
  return typeof given === "string" && SAFE_ID.test(given) ? given : `req_${uniqueSuffix()}`;
}

/** Letters and digits that no other call in any process gets: 72 random bits and a counter. */
export function uniqueSuffix(): string {
  counter += 1;
  return processPart + counter.toString(36).padStart(6, "0");
}

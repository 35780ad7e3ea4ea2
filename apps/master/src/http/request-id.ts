import { randomBytes } from "node:crypto";
import type { IncomingMessage } from "node:http";

/** A client's id that is safe in a header and in a log. */
const SAFE_ID = /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/;

const processPart = randomBytes(9).toString("base64url").replace(/[-_]/g, "0");
let counter = 0;

/** The client's `x-request-id` if it is safe, or a new unique one. */
export function requestIdOf(request: Pick<IncomingMessage, "headers">): string {
  const given = request.headers["x-request-id"];
  return typeof given === "string" && SAFE_ID.test(given) ? given : `req_${uniqueSuffix()}`;
}

/** Letters and digits that no other call of any process gets: 72 random bits and a counter. */
export function uniqueSuffix(): string {
  counter += 1;
  return processPart + counter.toString(36).padStart(6, "0");
}

import { createHmac, type KeyObject, timingSafeEqual } from "node:crypto";
import { AppError } from "@heddle/base/errors";
import { z } from "zod";
import type { LogName } from "./log-name.ts";

/** A reader's position in each log of a job; valid on every master. */
export interface LogCursor {
  readonly jobId: string;
  /** Logs of earlier attempts are not read. */
  readonly fromAttempt: number;
  /** In the order of names; a log without a position is read from its beginning. */
  readonly positions: readonly (Omit<LogName, "jobId"> & { readonly offset: number })[];
}

const natural = z.int().min(0);
/** [job, from attempt, [[attempt, rank, stdout or stderr, offset, incarnation unless 0], ...]] */
const shape = z.tuple([
  z.string(),
  natural,
  z.array(z.tuple([natural, natural, z.enum(["o", "e"]), natural], natural)).max(4_096),
]);

/** The cursor as text: its positions and a signature against forgery. */
export function writeCursor(cursor: LogCursor, pepper: KeyObject): string {
  const positions = cursor.positions.map(({ attempt, rank, stream, offset, incarnation }) => [
    attempt,
    rank,
    stream === "stdout" ? "o" : "e",
    offset,
    ...(incarnation ? [incarnation] : []),
  ]);
  const body = JSON.stringify([cursor.jobId, cursor.fromAttempt, positions]);
  return `${Buffer.from(body).toString("base64url")}.${signature(body, pepper)}`;
}

/**
 * Throws an AppError `invalid_value` on a text that no master of this cluster issued for the job.
 */
export function readCursor(text: string, jobId: string, pepper: KeyObject): LogCursor {
  const [encoded = "", signed = ""] = text.split(".");
  const body = Buffer.from(encoded, "base64url").toString();
  const expected = signature(body, pepper);
  const isOurs =
    signed.length === expected.length &&
    timingSafeEqual(Buffer.from(signed), Buffer.from(expected));
  const parsed = isOurs ? shape.safeParse(JSON.parse(body)) : undefined;
  if (!parsed?.success || parsed.data[0] !== jobId) {
    const message = "Invalid value for 'cursor': it was not given out for this job's logs.";
    throw new AppError("invalid_value", message, { param: "cursor" });
  }
  const [, fromAttempt, positions] = parsed.data;
  return {
    jobId,
    fromAttempt,
    positions: positions.map(([attempt, rank, stream, offset, incarnation]) => ({
      attempt,
      rank,
      offset,
      ...(incarnation && { incarnation }),
      stream: stream === "o" ? ("stdout" as const) : ("stderr" as const),
    })),
  };
}

function signature(body: string, pepper: KeyObject): string {
  return createHmac("sha256", pepper).update(`log cursor ${body}`).digest("base64url").slice(0, 22);
}

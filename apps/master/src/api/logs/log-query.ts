import type { KeyObject } from "node:crypto";
import type { LogsQuery } from "@heddle/contracts/api/job-operations";
import { readCursor } from "../../task-output/log-cursor.ts";
import { LOG_STREAMS } from "../../task-output/log-name.ts";
import type { LogQuery } from "../../task-output/log-reader.ts";

const unitMs: Readonly<Record<string, number>> = {
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};

/** What a query of `GET /jobs/{id}/logs` asks for; `cursor` is the one to resume after. */
export function logQuery(
  jobId: string,
  { attempt, rank, stream, tail, since, until, follow }: LogsQuery,
  cursor: string | undefined,
  pepper: KeyObject,
): LogQuery {
  return {
    jobId,
    attempt: attempt === "all" ? undefined : attempt,
    fromAttempt: attempt === "all" ? 1 : undefined,
    ranks: rank,
    streams: LOG_STREAMS.filter((name) => stream === "both" || stream === name),
    tail,
    sinceMs: timeOf(since),
    untilMs: timeOf(until),
    cursor: cursor === undefined ? undefined : readCursor(cursor, jobId, pepper),
    follow,
  };
}

/** A time in RFC 3339, or a span before now as `90s`, `10m`, `2h` or `1d`. */
function timeOf(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const [, count, unit = ""] = /^(\d{1,6})([smhd])$/.exec(text) ?? [];
  return count === undefined ? Date.parse(text) : Date.now() - Number(count) * (unitMs[unit] ?? 0);
}

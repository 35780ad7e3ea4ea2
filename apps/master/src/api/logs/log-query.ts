import { AppError } from "@heddle/base/errors";
import { readCursor } from "../../task-output/log-cursor.ts";
import { STREAMS } from "../../task-output/log-name.ts";
import type { LogQuery } from "../../task-output/log-reader.ts";

const maxTail = 10_000;
const maxRanks = 64;
const unitMs: Readonly<Record<string, number>> = {
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};

/** The names of its parameters. */
export const LOG_QUERY = [
  "follow",
  "tail",
  "since",
  "until",
  "attempt",
  "rank",
  "stream",
  "cursor",
];

/** The query of `GET /jobs/{id}/logs`. Throws an AppError `invalid_value` that names the parameter. */
export function logQuery(
  jobId: string,
  query: Readonly<Record<string, unknown>>,
  pepper: Uint8Array,
): LogQuery {
  const text = (name: string) => (query[name] === undefined ? undefined : String(query[name]));
  const { attempt, allAttempts } = attemptOf(text("attempt"));
  const cursor = text("cursor");
  return {
    jobId,
    attempt,
    allAttempts,
    ranks: ranksOf(text("rank")),
    streams: streamsOf(text("stream")),
    tail: naturalOf("tail", text("tail"), maxTail),
    sinceMs: timeOf("since", text("since")),
    untilMs: timeOf("until", text("until")),
    cursor: cursor === undefined ? undefined : readCursor(cursor, jobId, pepper),
    follow: followOf(text("follow")),
  };
}

function followOf(text: string | undefined): boolean {
  if (text === undefined || text === "false" || text === "0") return false;
  if (text === "true" || text === "1" || text === "") return true;
  throw wrong("follow", "`true` or `false`");
}

function attemptOf(text: string | undefined): Pick<LogQuery, "attempt" | "allAttempts"> {
  if (text === "all") return { allAttempts: true };
  return { attempt: naturalOf("attempt", text, 1_000_000), allAttempts: false };
}

function ranksOf(text: string | undefined): readonly number[] | undefined {
  if (text === undefined) return undefined;
  const parts = text.split(",");
  if (parts.length > maxRanks) throw wrong("rank", `at most ${maxRanks} ranks`);
  return parts.map((part) => naturalOf("rank", part, 4_095) ?? 0);
}

function streamsOf(text: string | undefined): LogQuery["streams"] {
  if (text === undefined || text === "both") return STREAMS;
  const found = STREAMS.filter((name) => name === text);
  if (found.length === 0) throw wrong("stream", "`stdout`, `stderr` or `both`");
  return found;
}

function naturalOf(name: string, text: string | undefined, max: number): number | undefined {
  if (text === undefined) return undefined;
  if (/^\d{1,9}$/.test(text) && Number(text) <= max) return Number(text);
  throw wrong(name, `a whole number up to ${max}${name === "attempt" ? ", or `all`" : ""}`);
}

/** A time in RFC 3339, or a span before now as `90s`, `10m`, `2h` or `1d`. */
function timeOf(name: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const [, count, unit] = /^(\d{1,6})([smhd])$/.exec(text) ?? [];
  if (unit !== undefined) return Date.now() - Number(count) * (unitMs[unit] ?? 0);
  const time = /^\d{4}-\d\d-\d\d/.test(text) ? Date.parse(text) : Number.NaN;
  if (Number.isFinite(time)) return time;
  throw wrong(name, "a time as 2026-01-31T12:00:00Z, or a span before now as 10m");
}

function wrong(param: string, expected: string): AppError {
  return new AppError("invalid_value", `Invalid value for '${param}': expected ${expected}.`, {
    param,
  });
}

import type { LogEntry } from "@heddle/contracts/api/job-operations";
import { pathPart } from "../path-part.ts";
import { resumingStream } from "../resuming.ts";
import type { CallOptions, HttpTransport, Query } from "../transport.ts";

/** Which lines of a job's tasks are wanted. */
export interface LogOptions extends CallOptions {
  /** Go on until the job has ended. */
  readonly follow?: boolean | undefined;
  /** Only so many of the last lines of each log. */
  readonly tail?: number | undefined;
  /** A time as of RFC 3339, or a span before now as `10m`. */
  readonly since?: string | undefined;
  readonly until?: string | undefined;
  /** One attempt, or `all`; absent: the latest and those that follow. */
  readonly attempt?: number | "all" | undefined;
  /** One rank, or several. */
  readonly rank?: number | readonly number[] | undefined;
  readonly stream?: "stdout" | "stderr" | "both" | undefined;
  /** The `cursor` of the last line that is known: the next one follows, to the byte. */
  readonly cursor?: string | undefined;
}

/**
 * The lines of a job's tasks, each once, over whatever masters. The cluster gives a cursor with the
 * last line of each batch: a batch that broke off is asked for again and was not told before.
 */
export async function* readLogs(
  transport: HttpTransport,
  id: string,
  { signal, cursor, rank, ...options }: LogOptions,
): AsyncGenerator<LogEntry, void> {
  const ranks = rank === undefined ? undefined : [rank].flat().join(",");
  const query: Query = { ...options, rank: ranks };
  const path = `/jobs/${pathPart(id)}`;
  const confirm = () =>
    transport.json({ method: "GET", path, query: { consistency: "strong" }, signal });
  const request = { path: `${path}/logs`, query, after: cursor, signal, confirm };
  let batch: LogEntry[] = [];
  for await (const item of resumingStream(transport, request)) {
    if (item === "closed" || item === "broken") batch = [];
    else if (item.type === "end") return;
    else if (item.data !== "") {
      const entry = JSON.parse(item.data) as LogEntry;
      batch.push(entry);
      if (entry.cursor === undefined) continue;
      yield* batch;
      batch = [];
    }
  }
}

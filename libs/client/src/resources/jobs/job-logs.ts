import type { LogEntry } from "@heddle/contracts/api/job-operations";
import { pathPart } from "../../path-part.ts";
import { resumingStream } from "../../resuming.ts";
import type { CallOptions, HttpTransport, Query } from "../../transport.ts";

/** Which log lines of a job to return. */
export interface LogOptions extends CallOptions {
  /** Continue until the job has ended. */
  readonly follow?: boolean | undefined;
  /** Only this many of the last lines of each log. */
  readonly tail?: number | undefined;
  /** An RFC 3339 time, or a duration before now such as `10m`. */
  readonly since?: string | undefined;
  readonly until?: string | undefined;
  /** One attempt, or `all`; absent: the latest and later ones. */
  readonly attempt?: number | "all" | undefined;
  /** One rank, or several. */
  readonly rank?: number | readonly number[] | undefined;
  readonly stream?: "stdout" | "stderr" | "both" | undefined;
  /** The `cursor` of the last known line; the next line follows. */
  readonly cursor?: string | undefined;
}

/**
 * The log lines of a job, each once, across masters. The last line of each batch has a cursor, so
 * an interrupted batch is requested again and was not returned before.
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

import { ConnectionError, HeddleError, NotFoundError } from "./errors.ts";
import { pause, retryWaitMs } from "./retry.ts";
import { readServerSentEvents, type ServerSentEvent, SILENCE_MS } from "./server-sent-events.ts";
import { aborted, type HttpTransport, type Query } from "./transport.ts";

/** How long to wait for a group without a leader or a starting master. */
const TIMEOUT_MS = 120_000;

/** A stream of the cluster from a position on. */
export interface StreamRequest {
  readonly path: string;
  readonly query?: Query | undefined;
  /** Sent as Last-Event-ID. */
  readonly after?: string | undefined;
  readonly signal?: AbortSignal | undefined;
  /**
   * Called if a master does not know the stream's subject, since it may lag. Rejects if the subject
   * does not exist.
   */
  readonly confirm: () => Promise<unknown>;
}

/** An event, or the end of a connection, regular or not. */
export type StreamItem = ServerSentEvent | "closed" | "broken";

/**
 * One stream over many connections, each started after the last event of the one before.
 *
 * It ends when
 * - the reader leaves the loop,
 * - the signal aborts (AbortedError),
 * - a master refuses it permanently, or
 * - no master was reachable for two minutes.
 */
export async function* resumingStream(
  transport: HttpTransport,
  request: StreamRequest,
): AsyncGenerator<StreamItem, void> {
  const { path, query, signal, confirm } = request;
  let { after } = request;
  let failures = 0;
  let lastContactMs: number | undefined;
  for (;;) {
    try {
      const headers = { accept: "text/event-stream", ...(after ? { "last-event-id": after } : {}) };
      // The first connection is like any other call; later ones are retried here.
      const maxRetries = lastContactMs === undefined ? undefined : 0;
      const call = { method: "GET", path, query, headers, signal, maxRetries } as const;
      const response = await transport.open(call);
      lastContactMs = performance.now();
      for await (const event of readServerSentEvents(response.body!, SILENCE_MS)) {
        lastContactMs = performance.now();
        failures = 0;
        after = event.id ?? after;
        yield event;
      }
      yield "closed";
    } catch (error) {
      if (signal?.aborted) throw aborted();
      const { reason, isLag } = await reasonOf(error, confirm);
      if (isLag) lastContactMs ??= performance.now();
      const isRefusal = reason instanceof HeddleError && !reason.retryable && !isLag;
      const isLate = lastContactMs === undefined || performance.now() - lastContactMs > TIMEOUT_MS;
      if (isRefusal || isLate || transport.maxRetries === 0) throw brokenOff(reason);
      transport.next();
      yield "broken";
    }
    failures++;
    await pause(retryWaitMs(failures, undefined, Math.random(), Date.now()) ?? 0, signal);
    if (signal?.aborted) throw aborted();
  }
}

/** What ended a connection; a lag if the cluster knows what the master does not. */
async function reasonOf(
  error: unknown,
  confirm: StreamRequest["confirm"],
): Promise<{ readonly reason: unknown; readonly isLag: boolean }> {
  if (!(error instanceof NotFoundError)) return { reason: error, isLag: false };
  return confirm().then(
    () => ({ reason: error, isLag: true }),
    (reason: unknown) => ({ reason, isLag: false }),
  );
}

function brokenOff(cause: unknown): HeddleError {
  if (cause instanceof HeddleError) return cause;
  const message = `The stream broke off (${(cause as Error).message}).`;
  return new ConnectionError(message, { code: "unavailable", retryable: true, cause });
}

import { AppError } from "@heddle/base/errors";
import {
  type EventLogQuery,
  eventLogOperations,
  type LogEventPage,
} from "@heddle/contracts/api/events/log";
import { Controller, Inject, Query, Req, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import { HEARTBEAT_MS } from "../../config/config.ts";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import { opener } from "../../control-plane/event-log/opened-event.ts";
import type { RecordedEvents } from "../../control-plane/recorded-events.ts";
import type { CallerRequest } from "../../http/access.ts";
import { EventStream } from "../../http/event-stream.ts";
import { requestCaller } from "../../http/identity/caller.ts";
import { Serves } from "../../http/serves.ts";
import { logFilter } from "./event-log-filter.ts";
import { EventLogSearch, type EventsFound } from "./event-log-search.ts";
import { ownEventLog } from "./own-event-log.ts";

const DEFAULT_LIMIT = 100;
/** Events that a stream reads at once. */
const STREAM_LIMIT = 1_000;
/** How long a read waits for events that are on their way to the disk. */
const FLUSH_MS = 5_000;

/** The event log as lists and as streams that resume. */
@Controller()
export class EventLogController {
  readonly #control: ControlPlane;

  constructor(@Inject(CONTROL_PLANE) control: ControlPlane) {
    this.#control = control;
  }

  @Serves(eventLogOperations.query)
  async query(
    @Req() request: CallerRequest,
    @Res() reply: FastifyReply,
    @Query() query: EventLogQuery,
  ): Promise<void> {
    const recorder = await this.#recorder();
    const log = new EventLogSearch(recorder.store, opener(this.#control.state, recorder));
    const resumed = request.headers["last-event-id"];
    const after = sequenceOf(resumed || undefined) ?? sequenceOf(query.cursor ?? query.after);
    const accepts = request.headers.accept ?? "";
    if (accepts.includes("text/event-stream")) {
      return this.#stream(request, reply, { log, after, query });
    }
    const isWanted = logFilter(query, requestCaller(request));
    const wanted = { isWanted, limit: query.limit ?? DEFAULT_LIMIT };
    const { begin, end } = await timesOf(log, query);
    const isDescending = query.order === "desc";
    if (!isDescending) checkKept(log, after);
    const found = isDescending
      ? await log.backward(begin, Math.min(end, after ?? end), wanted)
      : await log.forward(Math.max(begin, (after ?? -1) + 1), end, wanted);
    await reply.send(viewPage(found, isDescending));
  }

  async #recorder(): Promise<RecordedEvents> {
    const events = ownEventLog(this.#control);
    if (events.missing > 0) {
      const message = `This master still fetches ${events.missing} events from the others. Ask another master, or try again shortly.`;
      throw new AppError("unavailable", message, { retryAfterMs: 1_000 });
    }
    await events.awaitCounted(AbortSignal.timeout(FLUSH_MS));
    return events;
  }

  async #stream(
    request: CallerRequest,
    reply: FastifyReply,
    asked: {
      readonly log: EventLogSearch;
      readonly after: number | undefined;
      readonly query: EventLogQuery;
    },
  ): Promise<void> {
    const { log, after, query } = asked;
    checkStreamable(query);
    checkKept(log, after);
    await this.#checkReached(after);
    const isWanted = logFilter(query, requestCaller(request));
    const from = query.since === undefined ? log.size : (await timesOf(log, query)).begin;
    reply.hijack();
    const gone = new AbortController();
    reply.raw.once("close", () => gone.abort());
    const stream = new EventStream(reply.raw, {
      heartbeatMs: HEARTBEAT_MS,
      onOpen: () => ({ "x-request-id": request.id }),
    });
    let next = after === undefined ? from : after + 1;
    // So that a client without events can resume too.
    stream.write(`id: ${next - 1}\nretry: 1000\n\n`);
    try {
      while (!gone.signal.aborted) {
        const wanted = { isWanted, limit: STREAM_LIMIT };
        const end = log.size;
        const found = await log.forward(next, end, wanted);
        for (const { sequence, text } of found.events) {
          stream.write(`id: ${sequence}\ndata: ${text}\n\n`);
        }
        next = found.next ?? Math.max(next, end);
        await stream.drained();
        if (found.next === undefined) await log.grownBeyond(next, gone.signal);
      }
    } catch (error) {
      if (!gone.signal.aborted) throw error;
    } finally {
      stream.end();
    }
  }

  /** Refuses a place that no master knows: it precedes a restore, or is invented. */
  async #checkReached(after: number | undefined): Promise<void> {
    const { events, group } = this.#control;
    if (after === undefined || !events || after < events.count) return;
    // This master may lag behind; if that cannot be checked, the caller must retry.
    await group?.readBarrier();
    if (after < events.count) return;
    const message = `The log has ${events.count} events, and none has the sequence ${after}. Follow it without Last-Event-ID.`;
    throw new AppError("gone", message, { param: "Last-Event-ID" });
  }
}

/** The events between two times. */
async function timesOf(log: EventLogSearch, { since, until }: EventLogQuery) {
  const begin = since === undefined ? log.first : await log.firstSince(Date.parse(since));
  const end = until === undefined ? log.size : await log.firstSince(Date.parse(until));
  return { begin, end };
}

function checkStreamable({ limit, until, order }: EventLogQuery): void {
  const named = [
    ["limit", limit !== undefined],
    ["until", until !== undefined],
    ["order", order === "desc"],
  ] as const;
  for (const [param, isGiven] of named) {
    if (!isGiven) continue;
    const message = `A stream of events has no end, and so no '${param}': leave it out.`;
    throw new AppError("invalid_value", message, { param });
  }
}

function checkKept({ first }: EventLogSearch, after: number | undefined): void {
  if (after === undefined || after + 1 >= first) return;
  const message = `The events after ${after} are no longer kept: the first that is kept has the sequence ${first}.`;
  throw new AppError("gone", message, { param: "after" });
}

function viewPage({ events, next }: EventsFound, isDescending: boolean): LogEventPage {
  // The cursor is the last position that was examined.
  const cursor = next === undefined ? null : String(isDescending ? next : next - 1);
  const data = events.map(({ event }) => event);
  return { object: "list", data, has_more: next !== undefined, next_cursor: cursor };
}

function sequenceOf(given: unknown): number | undefined {
  if (given === undefined) return undefined;
  // A stream without events begins before the first.
  if (given === "-1") return -1;
  if (typeof given === "string" && /^\d{1,15}$/.test(given)) return Number(given);
  const message = "Invalid value for 'Last-Event-ID': expected the `sequence` of an event.";
  throw new AppError("invalid_value", message, { param: "Last-Event-ID" });
}

import type { ClusterEvent, EventPage } from "@heddle/contracts/api/events";
import type { EventLogQuery, LogEvent } from "@heddle/contracts/api/events/log";
import { Pages } from "../../pages.ts";
import { resumingStream } from "../../resuming.ts";
import type { CallOptions, HttpTransport } from "../../transport.ts";

/** Which events to return. */
export interface EventOptions extends CallOptions {
  /** The `id` of the last known event; `0.0` is before the oldest kept one. */
  readonly after?: string | undefined;
}

type LogFilter = Pick<EventLogQuery, "type" | "project" | "subject" | "user" | "tag" | "since">;

/** Which events of the event log to return. */
export interface EventLogOptions extends Partial<LogFilter>, CallOptions {
  /** The `sequence` of the last known event. */
  readonly after?: string | undefined;
}

/** The cluster's events: `heddle.events`. */
export class Events {
  readonly #transport: HttpTransport;

  constructor(transport: HttpTransport) {
    this.#transport = transport;
  }

  /** The kept events after a position. */
  list(options: EventOptions & { readonly limit?: number | undefined } = {}): Promise<EventPage> {
    const { after, limit, signal } = options;
    return this.#transport.json({
      method: "GET",
      path: "/events",
      query: { after, limit },
      signal,
    });
  }

  /** Each event once and in order, across masters, from now on or after a position. */
  async *stream({ after, signal }: EventOptions = {}): AsyncGenerator<ClusterEvent, void> {
    const request = { path: "/events", after, signal, confirm: () => Promise.resolve() };
    for await (const item of resumingStream(this.#transport, request)) {
      if (item === "closed" || item === "broken" || item.data === "") continue;
      yield JSON.parse(item.data) as ClusterEvent;
    }
  }

  /** The event log, the oldest first, or the newest with the order `desc`. */
  query(
    options: EventLogOptions & Partial<Pick<EventLogQuery, "until" | "order" | "limit">> = {},
  ): Pages<LogEvent> {
    const { signal, ...query } = options;
    return new Pages(this.#transport, "/events/log", query, { signal });
  }

  /** Each event of the log once and in order, across masters, from now on, a time or an event. */
  async *follow({ after, signal, ...query }: EventLogOptions = {}): AsyncGenerator<LogEvent, void> {
    const confirm = () => this.query({ limit: 1 }).page();
    const request = { path: "/events/log", query, after, signal, confirm };
    for await (const item of resumingStream(this.#transport, request)) {
      if (item === "closed" || item === "broken" || item.data === "") continue;
      yield JSON.parse(item.data) as LogEvent;
    }
  }
}

import type { ClusterEvent, EventPage } from "@heddle/contracts/api/events";
import { resumingStream } from "../../resuming.ts";
import type { CallOptions, HttpTransport } from "../../transport.ts";

/** Which events to return. */
export interface EventOptions extends CallOptions {
  /** The `id` of the last known event; `0.0` is before the oldest kept one. */
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
}

import type { ClusterEvent, EventPage } from "@heddle/contracts/api/events";
import { resumingStream } from "../resuming.ts";
import type { CallOptions, HttpTransport } from "../transport.ts";

/** Which events are wanted. */
export interface EventOptions extends CallOptions {
  /** The `id` of the last event that is known; `0.0` is before the oldest that is kept. */
  readonly after?: string | undefined;
}

/** What happens in the cluster: `heddle.events`. */
export class Events {
  readonly #transport: HttpTransport;

  constructor(transport: HttpTransport) {
    this.#transport = transport;
  }

  /** The events that are kept after a position. */
  list(options: EventOptions & { readonly limit?: number | undefined } = {}): Promise<EventPage> {
    const { after, limit, signal } = options;
    return this.#transport.json({
      method: "GET",
      path: "/events",
      query: { after, limit },
      signal,
    });
  }

  /** Each event once and in order, over whatever masters, from now on or after a position. */
  async *stream({ after, signal }: EventOptions = {}): AsyncGenerator<ClusterEvent, void> {
    const request = { path: "/events", after, signal, confirm: () => Promise.resolve() };
    for await (const item of resumingStream(this.#transport, request)) {
      if (item === "closed" || item === "broken" || item.data === "") continue;
      yield JSON.parse(item.data) as ClusterEvent;
    }
  }
}

import type { ClusterEvent, EventPage } from "@heddle/contracts/api/events";
import type {
  ConsistencyProof,
  CosignedCheckpoint,
  CosignRequest,
  EventLogKeys,
  EventLogQuery,
  ExportQuery,
  LogEvent,
  LogEventRequest,
  LoggedEvent,
  ShreddedSubject,
} from "@heddle/contracts/api/events/log";
import { Pages } from "../../pages.ts";
import { pathPart } from "../../path-part.ts";
import { resumingStream } from "../../resuming.ts";
import type { CallOptions, ChangeOptions, HttpTransport } from "../../transport.ts";

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

/** Which checkpoint to return. */
export interface CheckpointOptions extends CallOptions {
  /** The newest that a witness signed. */
  readonly cosigned?: boolean | undefined;
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

  /** Logs an event of the caller; one with a source and an id once. */
  log(event: LogEventRequest, options: ChangeOptions = {}): Promise<LoggedEvent> {
    return this.#transport.change({ method: "POST", path: "/events/log", body: event }, options);
  }

  /** The name of the log, and the public keys that verify it. */
  keys({ signal }: CallOptions = {}): Promise<EventLogKeys> {
    return this.#transport.json({ method: "GET", path: "/events/log/keys", signal });
  }

  rotateKey(options: ChangeOptions = {}): Promise<EventLogKeys> {
    return this.#transport.change({ method: "POST", path: "/events/log/keys", body: {} }, options);
  }

  /** Removes the key of a subject: its personal data cannot be read any more. */
  shred(subject: string, options: ChangeOptions = {}): Promise<ShreddedSubject> {
    const request = { method: "POST", path: "/events/log/shred", body: { subject } } as const;
    return this.#transport.change(request, options);
  }

  /** The newest checkpoint, or the newest that a witness signed: a signed note. */
  checkpoint({ cosigned, ...options }: CheckpointOptions = {}): Promise<string> {
    return this.#text("/events/log/checkpoint", options, cosigned ? { cosigned } : {});
  }

  /** Adds signatures of witnesses that the masters know to a checkpoint. */
  cosign(cosignatures: CosignRequest, options: ChangeOptions = {}): Promise<CosignedCheckpoint> {
    const request = {
      method: "POST",
      path: "/events/log/cosignatures",
      body: cosignatures,
    } as const;
    return this.#transport.change(request, options);
  }

  /** A proof that the event is in the log, by the newest checkpoint. */
  proof(sequence: string, options: CallOptions = {}): Promise<string> {
    return this.#text(`/events/log/proofs/${pathPart(sequence)}`, options);
  }

  /** The bytes of an event, as its proof is about them. */
  async entry(sequence: string, { signal }: CallOptions = {}): Promise<Uint8Array> {
    const path = `/events/log/entries/${pathPart(sequence)}`;
    const response = await this.#transport.open({ method: "GET", path, signal });
    return new Uint8Array(await response.arrayBuffer());
  }

  /** A tile or a bundle of entries by its path in C2SP tlog-tiles, as `tile/0/000.p/5`. */
  async tile(path: string, { signal }: CallOptions = {}): Promise<Uint8Array> {
    const parts = path.split("/").map(pathPart).join("/");
    const request = { method: "GET", path: `/events/log/${parts}`, signal } as const;
    const response = await this.#transport.open(request);
    return new Uint8Array(await response.arrayBuffer());
  }

  /** A proof that the log of one size is the beginning of the log of another. */
  consistency(from: number, to: number, { signal }: CallOptions = {}): Promise<ConsistencyProof> {
    const query = { from, to };
    return this.#transport.json({ method: "GET", path: "/events/log/consistency", query, signal });
  }

  /** Events with their proofs as NDJSON, for `heddle events verify`. */
  export(range: Partial<ExportQuery> = {}, { signal }: CallOptions = {}): Promise<Response> {
    return this.#transport.open({
      method: "GET",
      path: "/events/log/export",
      query: range,
      signal,
    });
  }

  async #text(
    path: string,
    { signal }: CallOptions,
    query: Readonly<Record<string, true>> = {},
  ): Promise<string> {
    return (await this.#transport.open({ method: "GET", path, query, signal })).text();
  }
}

import type { DerivedEvent } from "./derived-events.ts";

/** Where an event is: its log entry, its place in it, and its place among all events. */
export interface EventPlace {
  readonly index: number;
  readonly ordinal: number;
  readonly sequence: number;
  /** The time of the log entry. */
  readonly recordedMs: number;
  /** The name of the event log. */
  readonly origin: string;
}

/** More than this of data is replaced by its size. */
const MAX_DATA_CHARS = 16_384;

/**
 * An event as CloudEvents 1.0 in JSON. Its text is what masters store and sign, so the order of its
 * members and their form never change.
 */
export function cloudEvent(event: DerivedEvent, place: EventPlace): string {
  const { type, subject, project, result, audit, client, atMs = place.recordedMs } = event;
  return JSON.stringify({
    specversion: "1.0",
    id: client?.id ?? `${place.index}.${place.ordinal}`,
    source: client?.source ?? `//${place.origin}`,
    type,
    subject,
    time: new Date(atMs).toISOString(),
    datacontenttype: "application/json",
    sequence: String(place.sequence),
    recordedtime: new Date(place.recordedMs).toISOString(),
    project,
    result,
    userid: audit?.user,
    sessionid: client?.session ?? audit?.session,
    requestid: audit?.request,
    clientaddress: audit?.address,
    actorid: client?.actor,
    correlationid: client?.correlation,
    compliancelevel: client?.compliance,
    stream: client?.stream,
    revision: event.revision === undefined ? undefined : String(event.revision),
    tags: client && client.tags.length > 0 ? client.tags.join(",") : undefined,
    data: bounded(event.data),
  });
}

function bounded(data: DerivedEvent["data"]): object {
  const { length } = JSON.stringify(data);
  return length <= MAX_DATA_CHARS ? data : { omitted: length };
}

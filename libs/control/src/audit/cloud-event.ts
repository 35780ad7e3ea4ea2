import type { DerivedEvent } from "./derived-events.ts";
import type { SubjectKey } from "./subject-keys.ts";

/** Where an event is: its log entry, its place in it, and its place among all events. */
export interface EventPlace {
  readonly index: number;
  readonly ordinal: number;
  readonly sequence: number;
  /** The time of the log entry. */
  readonly recordedMs: number;
  /** The name of the event log. */
  readonly origin: string;
  /** Encrypts personal members under the key of their subject: the same bytes on every master. */
  readonly seal: SealMembers;
}

/** The subject of the personal members. */
export type SealRole = "caller" | "actor";

export type SealMembers = (members: object, role: SealRole, key: string) => string;

/** More than this of data is replaced by its size. */
const MAX_DATA_CHARS = 16_384;

/**
 * An event as CloudEvents 1.0 in JSON. Its text is what masters store and sign, so the order of its
 * members and their form never change.
 */
export function cloudEvent(event: DerivedEvent, place: EventPlace): string {
  const { type, subject, project, result, audit, client, atMs = place.recordedMs } = event;
  const { seals = {} } = event;
  const data = bounded(event.data);
  const session = client?.session ?? audit?.session;
  const { caller, actor } = seals;
  const tags = client?.tags.length ? client.tags : (audit?.classified?.tags ?? []);
  // Who calls, and what a client says of whom its event is about.
  const ofCaller = {
    userid: audit?.user,
    keyid: audit?.key,
    sessionid: actor ? audit?.session : session,
    clientaddress: audit?.address,
  };
  const ofActor = { actorid: client?.actor, sessionid: client?.session, data };
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
    userid: caller ? undefined : ofCaller.userid,
    keyid: caller ? undefined : ofCaller.keyid,
    sessionid: caller ? undefined : ofCaller.sessionid,
    requestid: audit?.request,
    clientaddress: caller ? undefined : ofCaller.clientaddress,
    actorid: actor ? undefined : ofActor.actorid,
    correlationid: client?.correlation,
    compliancelevel: client?.compliance ?? audit?.classified?.compliance,
    stream: client?.stream,
    revision: event.revision === undefined ? undefined : String(event.revision),
    tags: tags.length > 0 ? tags.join(",") : undefined,
    ...sealOf("caller", caller, ofCaller, place),
    ...sealOf("actor", actor, ofActor, place),
    data: actor ? {} : data,
  });
}

function sealOf(role: SealRole, key: SubjectKey | undefined, members: object, place: EventPlace) {
  if (!key) return {};
  return {
    [`${role}key`]: key.id,
    [`${role}data`]: key.key && place.seal(members, role, key.key),
  };
}

function bounded(data: DerivedEvent["data"]): object {
  const { length } = JSON.stringify(data);
  return length <= MAX_DATA_CHARS ? data : { omitted: length };
}

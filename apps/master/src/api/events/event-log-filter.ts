import type { EventLogQuery, LogEvent } from "@heddle/contracts/api/events/log";
import type { Caller } from "../../http/identity/caller.ts";

/** No project has this name: what is allowed in it is allowed in the whole cluster. */
const NO_PROJECT = "";

type Filter = Pick<EventLogQuery, "type" | "project" | "subject" | "user" | "tag">;

/** Whether the caller may see an event, and asks for it. */
export function logFilter(query: Filter, { grants }: Caller): (event: LogEvent) => boolean {
  const types = query.type === undefined ? undefined : new Set(query.type.split(","));
  const ofSubject = subjectTest(query.subject);
  return (event) =>
    grants.may("events:read", event.project ?? NO_PROJECT) &&
    (types === undefined || types.has(event.type)) &&
    (query.project === undefined || query.project === event.project) &&
    (query.user === undefined || isBy(event, query.user)) &&
    (query.tag === undefined || (event.tags ?? "").split(",").includes(query.tag)) &&
    ofSubject(event.subject);
}

function isBy({ userid, keyid }: LogEvent, user: string): boolean {
  return user === userid || (keyid !== undefined && user === `key:${keyid}`);
}

function subjectTest(subject: string | undefined): (of: string) => boolean {
  if (subject === undefined) return () => true;
  if (!subject.endsWith("*")) return (of) => of === subject;
  const start = subject.slice(0, -1);
  return (of) => of.startsWith(start);
}

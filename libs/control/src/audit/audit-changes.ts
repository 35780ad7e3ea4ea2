import { unknownRefusal } from "../apply.ts";
import {
  COPIES_EVENTS,
  COSIGNS_EVENTS,
  REMOVES_EVENTS,
  SEALS_SUBJECTS,
  versionOf,
} from "../cluster-version.ts";
import { ACCEPTED, type ControlReply, type Refusal, refuse } from "../command.ts";
import type { ControlState } from "../state.ts";
import type {
  AuditCommand,
  ClientEvent,
  CosignCommand,
  EventsSentCommand,
  RemoveEventsCommand,
} from "./records.ts";
import { shredSubject } from "./subject-keys.ts";

/** Records of one command. */
const MAX_RECORDS = 256;
/** A checkpoint with the signatures of two keys, and some of witnesses. */
const MAX_NOTE_CHARS = 8_192;

/** Names of clients' events that are known; the oldest is forgotten. */
const MAX_NAMES = 50_000;
/** Streams with a revision. */
const MAX_STREAMS = 100_000;
const TYPES: ReadonlySet<string> = new Set([
  "audit.record",
  "events.log",
  "events.checkpoint",
  "events.shred",
  "events.remove",
  "events.sent",
  "events.cosign",
]);
/** Sinks whose place is kept; one more replaces the one that is furthest behind. */
const MAX_SINKS = 64;

type EventState = Pick<
  ControlState,
  "cluster" | "eventNames" | "eventStreams" | "subjects" | "subjectKeys"
>;

export function isAuditCommand(command: { readonly type: string }): command is AuditCommand {
  return TYPES.has(command.type);
}

/** Deterministic; what is recorded becomes events, and no part of the state but their number. */
export function changeAudit(state: EventState, command: AuditCommand): ControlReply {
  const { cluster } = state;
  if (command.type === "events.log") return logEvent(state, command);
  if (command.type === "audit.record") return takeRecords(cluster, command);
  if (command.type === "events.shred") {
    return versionOf(state) < SEALS_SUBJECTS
      ? unknownRefusal(`the command ${JSON.stringify(command.type)}`, state)
      : shredSubject(state, command);
  }
  if (command.type === "events.remove") {
    return versionOf(state) < REMOVES_EVENTS
      ? unknownRefusal(`the command ${JSON.stringify(command.type)}`, state)
      : removeEvents(cluster, command);
  }
  if (command.type === "events.sent") {
    return versionOf(state) < COPIES_EVENTS
      ? unknownRefusal(`the command ${JSON.stringify(command.type)}`, state)
      : noteSent(cluster, command);
  }
  if (command.type === "events.cosign") {
    return versionOf(state) < COSIGNS_EVENTS
      ? unknownRefusal(`the command ${JSON.stringify(command.type)}`, state)
      : keepCosigned(cluster, command);
  }
  const { size, note } = command;
  if (!Number.isSafeInteger(size) || note.length > MAX_NOTE_CHARS) {
    return refuse("invalid_value", "a checkpoint has a size and a note");
  }
  const events = (cluster.get("events") as number | undefined) ?? 0;
  if (size > events) return refuse("conflict", `there are ${events} events, not ${size}`);
  const known = checkpointSize(cluster.get("checkpoint"));
  if (size < known) return refuse("conflict", `a checkpoint covers ${known} events already`);
  cluster.set("checkpoint", note);
  return ACCEPTED;
}

/** The newest checkpoint that witnesses have signed is kept beside the newest one. */
function keepCosigned(
  cluster: ControlState["cluster"],
  { size, note }: CosignCommand,
): ControlReply {
  const newest = checkpointSize(cluster.get("checkpoint"));
  const known = checkpointSize(cluster.get("cosigned"));
  if (note.length > MAX_NOTE_CHARS || size !== checkpointSize(note)) {
    return refuse("invalid_value", "a checkpoint has a size and a note");
  }
  if (size < known || size > newest) {
    const message = `witnesses have signed ${known} events, and ${newest} are signed, not ${size}`;
    return refuse("conflict", message);
  }
  if (size === known && !hasAllOf(note, String(cluster.get("cosigned")))) {
    return refuse("conflict", "another witness has signed the checkpoint meanwhile");
  }
  cluster.set("cosigned", note);
  return ACCEPTED;
}

/** Whether a note has the text and all signatures of another. */
function hasAllOf(note: string, other: string): boolean {
  const end = other.lastIndexOf("\n\n") + 2;
  const lines = new Set(note.slice(end).split("\n"));
  const isSame = note.slice(0, end) === other.slice(0, end);
  return (
    isSame &&
    other
      .slice(end)
      .split("\n")
      .every((line) => lines.has(line))
  );
}

function noteSent(
  cluster: ControlState["cluster"],
  { sink, next }: EventsSentCommand,
): ControlReply {
  const events = (cluster.get("events") as number | undefined) ?? 0;
  if (!/^[0-9a-f]{16}$/.test(sink) || !(Number.isSafeInteger(next) && next <= events)) {
    return refuse("invalid_value", `a sink has at most the ${events} events, not ${next}`);
  }
  const known = cluster.get(`sink:${sink}`) as number | undefined;
  if (known !== undefined && next < known)
    return refuse("conflict", `the sink has ${known} events`);
  cluster.set(`sink:${sink}`, next);
  const sinks = [...cluster.keys()].filter((name) => name.startsWith("sink:"));
  if (sinks.length <= MAX_SINKS) return ACCEPTED;
  const furthest = sinks.sort().reduce((one, other) => {
    return Number(cluster.get(other)) < Number(cluster.get(one)) ? other : one;
  });
  cluster.delete(furthest);
  return ACCEPTED;
}

/** The first event that a sink does not have; undefined for a new one. */
export function sentTo(
  cluster: Pick<ControlState["cluster"], "get">,
  sink: string,
): number | undefined {
  return cluster.get(`sink:${sink}`) as number | undefined;
}

/** Only events that a checkpoint covers are removed. */
function removeEvents(
  cluster: ControlState["cluster"],
  { first, end }: RemoveEventsCommand,
): ControlReply {
  const kept = firstEvent(cluster);
  const signed = checkpointSize(cluster.get("checkpoint"));
  if (first === kept && Number.isSafeInteger(end) && end > first && end <= signed) {
    cluster.set("firstEvent", end);
    return ACCEPTED;
  }
  const message = `events ${first} to ${end} cannot be removed: ${kept} is the first, and ${signed} are signed`;
  return refuse("conflict", message);
}

/** The first event that the masters keep. */
export function firstEvent(cluster: Pick<ControlState["cluster"], "get">): number {
  return (cluster.get("firstEvent") as number | undefined) ?? 0;
}

/** Refuses a command that was applied before. */
function takeRecords(
  cluster: ControlState["cluster"],
  { records, master, batch }: Extract<AuditCommand, { type: "audit.record" }>,
): ControlReply {
  const { length } = records;
  if (length > MAX_RECORDS) {
    return refuse("invalid_value", `a command has at most ${MAX_RECORDS} records, got ${length}`);
  }
  if (!batch) return ACCEPTED;
  const name = `batch:${master}` as const;
  const [process, last] = String(cluster.get(name) ?? "").split(" ");
  if (process === batch.process && batch.number <= Number(last))
    return { ok: true, wasThere: true };
  cluster.set(name, `${batch.process} ${batch.number}`);
  return ACCEPTED;
}

/** Logs the event once; the reply has the revision of its stream. */
function logEvent(
  { eventNames, eventStreams }: EventState,
  command: Extract<AuditCommand, { type: "events.log" }>,
): ControlReply {
  const { name, fingerprint, expected, event } = command;
  const known = eventNames.get(name);
  if (known?.fingerprint === fingerprint) {
    return { ok: true, wasThere: true, version: known.revision };
  }
  if (known) {
    const message = `another event of ${event.source} has the id ${event.id}; give each event an id of its own`;
    return refuse("conflict", message, "id");
  }
  const revision = nextRevision(eventStreams, event, expected);
  if (typeof revision === "object") return revision;
  eventNames.set(name, { fingerprint, ...(revision !== undefined && { revision }) });
  if (eventNames.size > MAX_NAMES) {
    for (const oldest of eventNames.keys()) {
      eventNames.delete(oldest);
      break;
    }
  }
  return { ok: true, version: revision };
}

function nextRevision(
  streams: EventState["eventStreams"],
  { stream, project }: ClientEvent,
  expected: "any" | "none" | "exists" | number,
): number | undefined | Refusal {
  if (stream === undefined) {
    if (expected === "any") return undefined;
    return refuse("invalid_value", "an expected revision needs a stream", "stream");
  }
  const key = `${project}/${stream}`;
  const last = streams.get(key) ?? -1;
  const fits =
    expected === "any" ||
    (expected === "exists" ? last >= 0 : last === (expected === "none" ? -1 : expected));
  if (!fits) {
    const has = last < 0 ? "has no event" : `is at revision ${last}`;
    const message = `the stream ${stream} ${has}; read it again`;
    return refuse("precondition_failed", message, "expected_revision");
  }
  if (last < 0 && streams.size >= MAX_STREAMS) {
    return refuse("insufficient_storage", `there are ${MAX_STREAMS} streams of events already`);
  }
  streams.set(key, last + 1);
  return last + 1;
}

/** The number of events that a checkpoint covers; 0 without one. */
export function checkpointSize(note: unknown): number {
  return typeof note === "string" ? Number(note.split("\n", 2)[1]) : 0;
}

import type { EventResult, EventType } from "@heddle/contracts/event-types";
import type { ControlCommand, ControlReply } from "../command.ts";
import type { EventLog } from "../jobs/index/event-log.ts";
import type { EventRecord } from "../jobs/records/records.ts";
import type { ControlState } from "../state.ts";
import { type ChangeEvent, changeEvent } from "./change-events.ts";
import type { AuditContext, AuditRecord, ClientEvent } from "./records.ts";
import type { EventSeals } from "./subject-keys.ts";

/** What followed from a log entry. Its place in the entry and in the log make its id. */
export interface DerivedEvent {
  /** A type of the cluster's events, or of a client's. */
  readonly type: EventType | ClientEvent["type"];
  readonly subject: string;
  /** Who may see it beside administrators of the cluster: the project's. */
  readonly project?: string | undefined;
  readonly result: EventResult;
  readonly data: Readonly<Record<string, unknown>>;
  /** The call that asked for it. */
  readonly audit?: AuditContext | undefined;
  /** The event as a client logged it. */
  readonly client?: ClientEvent | undefined;
  /** Its place in the client's stream. */
  readonly revision?: number | undefined;
  /** When it happened, where that is before the entry. */
  readonly atMs?: number | undefined;
  /** What its personal data are encrypted with. */
  readonly seals?: EventSeals | undefined;
}

export const NO_EVENTS: readonly DerivedEvent[] = [];

/** What was applied, and the state after it. */
export interface AppliedCommand {
  readonly command: ControlCommand;
  readonly reply: ControlReply;
  readonly audit: AuditContext | undefined;
  /** A request that was applied before, and changed nothing now. */
  readonly isRepeated: boolean;
  readonly index: number;
  readonly state: ControlState;
  readonly jobEvents: EventLog;
}

/**
 * The events of an applied command: that of the change or of recorded calls, then those of jobs and
 * nodes. Every master derives the same, so a change of these rules needs a cluster version.
 */
export function derivedEvents(applied: AppliedCommand): readonly DerivedEvent[] {
  const { command, reply, audit, state } = applied;
  if (command.type === "audit.record") {
    return reply.ok && !reply.wasThere ? recordedCalls(command) : NO_EVENTS;
  }
  if (applied.isRepeated) return audit ? [ofRepeated(audit)] : NO_EVENTS;
  if (command.type === "events.log") return [ofClient(command.event, reply, audit)];
  const events = [...stateEvents(applied)];
  const change = changeEvent(command, state);
  if (change && (reply.ok || audit)) events.unshift(ofChange(change, reply, audit));
  return events.length === 0 ? NO_EVENTS : events;
}

function ofChange(
  change: ChangeEvent,
  reply: ControlReply,
  audit: AuditContext | undefined,
): DerivedEvent {
  // What was refused may not exist, so its project is the caller's.
  const project = change.project ?? (reply.ok ? reply.project : audit?.project);
  const data = audit ? { route: audit.route, ...change.data } : change.data;
  if (reply.ok) return { ...change, project, result: "success", data, audit };
  return { ...change, project, result: "refused", data: { ...data, code: reply.code }, audit };
}

function ofRepeated(audit: AuditContext): DerivedEvent {
  const { project, route } = audit;
  const data = { route, repeated: true };
  return { type: "API_CALL", subject: route, project, result: "success", data, audit };
}

function ofClient(
  client: ClientEvent,
  reply: ControlReply,
  audit: AuditContext | undefined,
): DerivedEvent {
  const { type, subject, project, data } = client;
  if (reply.ok && !reply.wasThere) {
    return {
      type,
      subject,
      project,
      data,
      result: "success",
      audit,
      client,
      revision: reply.version,
    };
  }
  const what = reply.ok ? { repeated: true } : { code: reply.code };
  const result = reply.ok ? "success" : "refused";
  return {
    type: "API_CALL",
    subject,
    project,
    result,
    data: { route: audit?.route, ...what },
    audit,
  };
}

/** The cluster version was raised. */
export function raisedEvent(version: number): DerivedEvent {
  return { type: "CLUSTER_UPGRADE", subject: "cluster", result: "success", data: { version } };
}

function recordedCalls(
  command: Extract<ControlCommand, { type: "audit.record" }>,
): readonly DerivedEvent[] {
  const events = command.records.map(ofCall);
  const { dropped = 0, master } = command;
  if (dropped === 0) return events;
  const subject = `masters/${master}`;
  return [...events, { type: "EVENTS_DROPPED", subject, result: "failed", data: { dropped } }];
}

const CALL_TYPES = { access: "DATA_ACCESS", denied: "ACCESS_DENIED", call: "API_CALL" } as const;

function ofCall(record: AuditRecord): DerivedEvent {
  const { kind, subject, status, atMs, project, route } = record;
  const result = kind === "denied" ? "denied" : resultOf(status);
  const data = { route, status };
  return { type: CALL_TYPES[kind], subject, project, result, data, audit: record, atMs };
}

function resultOf(status: number | undefined): EventResult {
  if (status === undefined) return "started";
  if (status < 400) return "success";
  return status < 500 ? "refused" : "failed";
}

/** The transitions of jobs and nodes that the log entry caused. */
function* stateEvents({ state, jobEvents, index }: AppliedCommand): Generator<DerivedEvent, void> {
  if (jobEvents.last.index !== index) return;
  for (const { what } of jobEvents.after({ index: index - 1, ordinal: Number.MAX_SAFE_INTEGER })) {
    // A submission has an event of its own.
    if (what.type === "job" && what.from === undefined) continue;
    yield what.type === "job" ? ofJob(what, state) : ofNode(what);
  }
}

type JobWhat = Extract<EventRecord["what"], { type: "job" }>;
type NodeWhat = Extract<EventRecord["what"], { type: "node" }>;

function ofJob(what: JobWhat, { specs }: ControlState): DerivedEvent {
  const { jobId, project, state, from, attempt, failure } = what;
  const algorithm = specs.get(jobId)?.algorithm;
  const isTraining = state === "running" && algorithm !== undefined;
  return {
    type: isTraining ? "MODEL_TRAINING_START" : "JOB_STATE",
    subject: `jobs/${jobId}`,
    project,
    result: state === "failed" ? "failed" : "success",
    data: {
      state,
      from,
      attempt,
      ...(isTraining && { algorithm }),
      ...(failure && { failure: failure.reason }),
    },
  };
}

function ofNode({ nodeId, state }: NodeWhat): DerivedEvent {
  const result = state === "lost" ? "failed" : "success";
  return { type: "NODE_STATE", subject: `nodes/${nodeId}`, result, data: { state } };
}

import { SEALS_SUBJECTS, versionOf } from "../cluster-version.ts";
import { ACCEPTED, type ControlCommand, type ControlReply, refuse } from "../command.ts";
import type { ControlState } from "../state.ts";
import type { AuditContext, ClientEvent, ShredCommand } from "./records.ts";

/** Subjects with a key of their own; those beyond share one, which is never removed. */
const MAX_SUBJECTS = 50_000;
const SHARED = "";
/** The key of a subject that was erased while its event was made: nothing personal is kept. */
const WITHHELD: SubjectKey = { id: "none", key: undefined };

/** What the personal data of a subject are encrypted with. */
export interface SubjectKey {
  readonly id: string;
  /** 32 bytes in base64; undefined where the data are left out. */
  readonly key: string | undefined;
}

/** A key that the log entry brings which is the first to name a subject. */
export interface NewSubject {
  readonly subject: string;
  readonly id: string;
  readonly key: string;
}

/** The keys of the subjects of an event. */
export interface EventSeals {
  /** The key of the subject that made the call. */
  readonly caller?: SubjectKey | undefined;
  /** The key of the subject that a client's event is about. */
  readonly actor?: SubjectKey | undefined;
}

type SubjectState = Pick<ControlState, "cluster" | "subjects" | "subjectKeys">;

/** The subjects that need keys before the events of a command. */
export function newSubjects(
  state: SubjectState,
  command: ControlCommand,
  audit: AuditContext | undefined,
): readonly string[] {
  if (versionOf(state) < SEALS_SUBJECTS) return [];
  const { subjects } = state;
  const named = [audit?.user];
  if (command.type === "audit.record") named.push(...command.records.map(({ user }) => user));
  if (command.type === "events.log") named.push(command.event.actor);
  const found = new Set<string>();
  for (const subject of named) {
    if (subject === undefined || subjects.has(subject)) continue;
    if (subjects.size + found.size < MAX_SUBJECTS) found.add(subject);
    else if (!subjects.has(SHARED)) found.add(SHARED);
  }
  return [...found];
}

/** The keys of an event's subjects; those of new ones are among the given. */
export function sealsOf(
  state: SubjectState,
  of: { readonly audit?: AuditContext | undefined; readonly client?: ClientEvent | undefined },
  given: readonly NewSubject[],
): EventSeals | undefined {
  const caller = of.audit?.user;
  const actor = of.client?.actor;
  if (caller === undefined && actor === undefined) return undefined;
  return {
    ...(caller !== undefined && { caller: keyOf(state, caller, given) }),
    ...(actor !== undefined && { actor: keyOf(state, actor, given) }),
  };
}

function keyOf(state: SubjectState, subject: string, given: readonly NewSubject[]): SubjectKey {
  const { subjects, subjectKeys } = state;
  const known = subjects.get(subject);
  if (known !== undefined) return { id: known, key: subjectKeys.get(known) };
  const isFull = subjects.size >= MAX_SUBJECTS;
  if (isFull && subject !== SHARED) return keyOf(state, SHARED, given);
  const made = given.find((each) => each.subject === subject);
  if (!made || subjectKeys.has(made.id)) return WITHHELD;
  subjects.set(subject, made.id);
  subjectKeys.set(made.id, made.key);
  return { id: made.id, key: made.key };
}

/** Removes the key of a subject: what it encrypts cannot be read any more. */
export function shredSubject(state: SubjectState, { subject, id }: ShredCommand): ControlReply {
  const known = subject === SHARED ? undefined : state.subjects.get(subject);
  if (known === undefined || known !== id) {
    return refuse("not_found", "no personal data are kept of this subject", "subject");
  }
  state.subjects.delete(subject);
  state.subjectKeys.delete(known);
  return ACCEPTED;
}

import { AsyncLocalStorage } from "node:async_hooks";
import { randomBytes } from "node:crypto";
import { hasChangeEvent } from "@heddle/control/audit/change-events";
import type { AuditContext } from "@heddle/control/audit/records";
import { type NewSubject, newSubjects } from "@heddle/control/audit/subject-keys";
import type { ControlCommand } from "@heddle/control/command";
import type { ControlState } from "@heddle/control/state";

/** An API call in progress. */
export interface AuditCall {
  /** What is known of it now. */
  context(): AuditContext;
  /** What it is about, where its route does not say. */
  subject?: string | undefined;
  /** A command names it, so its event is that of the change. */
  isLogged: boolean;
}

const calls = new AsyncLocalStorage<AuditCall>();

/** Runs what answers a call, so that the changes it asks for name it. */
export function duringCall<Result>(call: AuditCall, answer: () => Result): Result {
  return calls.run(call, answer);
}

/** Says what the present call is about. */
export function callIsAbout(subject: string): void {
  const call = calls.getStore();
  if (call) call.subject = subject;
}

/**
 * The call that asks for a change, for the first of its changes that has an event of its own. A
 * call has one event, however many changes it makes; `undo` is for a change that was surely not
 * made.
 */
export function takeAudit(
  type: ControlCommand["type"],
): { readonly audit: AuditContext; undo(): void } | undefined {
  const call = calls.getStore();
  if (!call || call.isLogged || !hasChangeEvent(type)) return undefined;
  call.isLogged = true;
  const undo = () => {
    call.isLogged = false;
  };
  return { audit: call.context(), undo };
}

/** Random keys of the subjects that the command is the first to name. */
export function keysOfNew(
  state: ControlState,
  command: ControlCommand,
  audit: AuditContext | undefined,
): { readonly subjects: readonly NewSubject[] } | undefined {
  const names = newSubjects(state, command, audit);
  if (names.length === 0) return undefined;
  const subjects = names.map((subject) => {
    const [id, key] = [randomBytes(8).toString("hex"), randomBytes(32).toString("base64")];
    return { subject, id, key };
  });
  return { subjects };
}

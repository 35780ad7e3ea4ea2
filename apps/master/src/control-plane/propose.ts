import { randomBytes, randomUUID } from "node:crypto";
import { retry } from "@heddle/base/async/retry";
import { AppError, type ErrorCode, toAppError } from "@heddle/base/errors";
import type { ControlCommand, ControlReply, Refusal } from "@heddle/control/command";
import type { ControlPlane, Once } from "./control-plane.ts";

/** What a change that was made was answered with. */
export type Accepted = Extract<ControlReply, { ok: true }>;

/** Changes the replicated state, or throws what it refused with as an AppError. */
export async function propose(
  control: ControlPlane,
  command: ControlCommand,
  once?: Once,
): Promise<Accepted> {
  return accepted(await control.propose(command, once), command);
}

const RETRY_MS = 500;
/** Less than a node waits for its certificate. */
const ONCE_DEADLINE_MS = 10_000;
const PASSING: readonly ErrorCode[] = ["unavailable", "outcome_unknown", "overloaded"];

/**
 * For idempotent changes at the start of a master. Retries while there is no leader or the outcome
 * of the last attempt is unknown.
 */
export function untilSettled<Result>(
  control: ControlPlane,
  attempt: () => Promise<Result>,
  deadlineMs?: number,
): Promise<Result> {
  return retry(attempt, {
    backoff: { baseMs: RETRY_MS, maxMs: RETRY_MS },
    deadlineMs,
    isPassing: (error) => !control.fault && PASSING.includes(toAppError(error).code),
  });
}

/**
 * For changes that a second time would be refused: one whose outcome is unknown is proposed again
 * under the same id, and is applied once.
 */
export function proposeOnce(control: ControlPlane, command: ControlCommand): Promise<Accepted> {
  const fingerprint = randomBytes(32).toString("hex");
  const idempotency = { id: `master:${randomUUID()}`, fingerprint, answer: "" };
  return untilSettled(control, () => propose(control, command, { idempotency }), ONCE_DEADLINE_MS);
}

/** The reply where the change was made; throws its refusal as an AppError. */
export function accepted(reply: ControlReply, command?: Pick<ControlCommand, "type">): Accepted {
  if (reply.ok) return reply;
  const code =
    reply.code === "not_found" && command?.type === "model.remove" ? "model_not_found" : reply.code;
  throw refusalError(reply, code);
}

/** A refusal as the error that a caller sees. */
export function refusalError(refusal: Refusal, code: ErrorCode = refusal.code): AppError {
  const { message, param } = refusal;
  return new AppError(code, `${message.charAt(0).toUpperCase()}${message.slice(1)}.`, { param });
}

import { AppError, type ErrorCode } from "@heddle/base/errors";
import type { ControlCommand, ControlReply, Refusal } from "@heddle/control/command";
import type { ControlPlane, Once } from "../ports.ts";

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

import { AppError } from "@heddle/base/errors";
import type { ControlCommand } from "@heddle/control/command";
import type { ControlPlane } from "../ports.ts";

/** Changes the replicated state, or throws what it refused with as an AppError. */
export async function propose(control: ControlPlane, command: ControlCommand): Promise<void> {
  const reply = await control.propose(command);
  if (reply.ok) return;
  const code =
    reply.code === "not_found" && command.type === "model.remove" ? "model_not_found" : reply.code;
  throw new AppError(code, `${reply.message.charAt(0).toUpperCase()}${reply.message.slice(1)}.`);
}

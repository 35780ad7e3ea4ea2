import { ACCEPTED, type ControlReply, refuse } from "../command.ts";
import type { ControlState } from "../state.ts";
import type { SessionCommand } from "./records.ts";

const MAX_ENDED = 50_000;
const MAX_NAMES = 4;
const MAX_LIFE_MS = 2 * 86_400_000;

export function isSessionCommand(command: { readonly type: string }): command is SessionCommand {
  return command.type === "session.end";
}

/** The only code that changes the sessions that were ended. */
export function changeSessions(
  { endedSessions }: Pick<ControlState, "endedSessions">,
  { names, beganUntilMs, forgetAtMs, atMs }: SessionCommand,
): ControlReply {
  if (
    names.length === 0 ||
    names.length > MAX_NAMES ||
    !names.every((n) => /^[0-9a-f]{64}$/.test(n))
  ) {
    return refuse("invalid_value", `a session is ended by 1 to ${MAX_NAMES} SHA-256`);
  }
  if (!(forgetAtMs > atMs && forgetAtMs <= atMs + MAX_LIFE_MS)) {
    return refuse("invalid_value", "an ended session is forgotten within two days");
  }
  for (const [name, ended] of [...endedSessions]) {
    if (ended.forgetAtMs <= atMs) endedSessions.delete(name);
  }
  if (endedSessions.size + names.length > MAX_ENDED) {
    return refuse("overloaded", `the cluster remembers ${MAX_ENDED} ended sessions`);
  }
  for (const name of names) {
    const before = endedSessions.get(name)?.beganUntilMs ?? 0;
    endedSessions.set(name, { beganUntilMs: Math.max(before, beganUntilMs), forgetAtMs });
  }
  return ACCEPTED;
}

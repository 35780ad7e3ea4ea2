import { ACCEPTED, type ControlReply, refuse } from "../command.ts";
import type { ControlState } from "../state.ts";
import type { SessionCommand } from "./records.ts";

const MAX_ENDED = 50_000;
const MAX_NAMES = 4;
const MAX_LIFE_MS = 2 * 86_400_000;
const MAX_KEPT = 10_000;
/** The longest encrypted form of two tokens in JSON. */
const MAX_SEALED = 24_576;
const MAX_CLAIM_MS = 60_000;

type SessionState = Pick<ControlState, "endedSessions" | "sessionTokens">;
type CommandOf<T> = Extract<SessionCommand, { readonly type: T }>;

const TYPES: ReadonlySet<string> = new Set<SessionCommand["type"]>([
  "session.end",
  "session.keep",
  "session.claim",
  "session.drop",
]);

export function isSessionCommand(command: { readonly type: string }): command is SessionCommand {
  return TYPES.has(command.type);
}

/** The only code that changes sessions of browsers. */
export function changeSessions(state: SessionState, command: SessionCommand): ControlReply {
  switch (command.type) {
    case "session.end":
      return endSessions(state, command);
    case "session.keep":
      return keepTokens(state, command);
    case "session.claim":
      return claimTokens(state, command);
    case "session.drop":
      state.sessionTokens.delete(command.name);
      return ACCEPTED;
    default:
      return command satisfies never;
  }
}

function endSessions(
  { endedSessions, sessionTokens }: SessionState,
  { names, beganUntilMs, forgetAtMs, atMs }: CommandOf<"session.end">,
): ControlReply {
  if (names.length === 0 || names.length > MAX_NAMES || !names.every(isName)) {
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
    sessionTokens.delete(name);
  }
  return ACCEPTED;
}

function keepTokens(
  { sessionTokens }: SessionState,
  { name, sealed, version, forgetAtMs, atMs }: CommandOf<"session.keep">,
): ControlReply {
  if (!isName(name)) return refuse("invalid_value", "a session's name is a SHA-256");
  if (sealed.length > MAX_SEALED) return refuse("invalid_value", "the tokens are too long");
  if (!(forgetAtMs > atMs && forgetAtMs <= atMs + MAX_LIFE_MS)) {
    return refuse("invalid_value", "a session ends within two days");
  }
  for (const [known, tokens] of [...sessionTokens]) {
    if (tokens.forgetAtMs <= atMs) sessionTokens.delete(known);
  }
  const known = sessionTokens.get(name);
  if ((known?.version ?? 0) !== version) {
    return refuse("conflict", "the session has other tokens by now");
  }
  if (!known && sessionTokens.size >= MAX_KEPT) {
    return refuse("overloaded", `the cluster renews ${MAX_KEPT} sessions already`);
  }
  sessionTokens.set(name, { sealed, version: version + 1, forgetAtMs });
  return ACCEPTED;
}

function claimTokens(
  { sessionTokens }: SessionState,
  { name, version, untilMs, atMs }: CommandOf<"session.claim">,
): ControlReply {
  const known = sessionTokens.get(name);
  if (known?.version !== version || (known.claimedUntilMs ?? 0) > atMs) {
    return refuse("conflict", "another master renews the session");
  }
  if (!(untilMs > atMs && untilMs <= atMs + MAX_CLAIM_MS)) {
    return refuse("invalid_value", `a claim lasts up to ${MAX_CLAIM_MS} ms`);
  }
  sessionTokens.set(name, { ...known, claimedUntilMs: untilMs });
  return ACCEPTED;
}

function isName(name: string): boolean {
  return /^[0-9a-f]{64}$/.test(name);
}

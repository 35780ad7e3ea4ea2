import { LIMITED_TASKS } from "./cluster-version.ts";
import type { ControlReply } from "./command.ts";
import { HashedMap } from "./hashed-map.ts";

/** From this cluster version on the log has no sessions: idempotency keys replace them. */
export const NO_SESSIONS_FROM = LIMITED_TASKS;
/** Sessions at once; the longest idle one is evicted. */
const MAX_SESSIONS = 10_000;
/** A session idle for this long, by the log's time, ends. */
const SESSION_IDLE_MS = 3_600_000;
/** Replies kept per client, which bounds its requests in flight. */
const MAX_REPLIES = 16;
/** Gaps in the sequence that are kept; beyond them the oldest count as answered. */
const MAX_MISSING = MAX_REPLIES;

/** Identifies one request of one client over all its retries. */
export interface SessionRequest {
  readonly client: string;
  /** Incremented with each request of the client. */
  readonly sequence: number;
}

/** What the cluster keeps of a client; immutable. */
export interface Session {
  readonly lastUsedMs: number;
  /** Requests up to here are answered and their replies dropped, except for the missing ones. */
  readonly forgottenUpTo: number;
  /** Gaps below, ascending: a slow request may still arrive. Absent if none. */
  readonly missing?: readonly number[];
  /** The latest replies, oldest first. */
  readonly replies: readonly (readonly [sequence: number, reply: ControlReply])[];
}

/**
 * Exactly-once semantics: a repeated request, through any master and leader, gets its first reply
 * and is not applied again (Raft thesis, section 6.3). Only logs of earlier versions have sessions. Deterministic.
 */
export class Sessions {
  /** Least recently used first. */
  readonly map = new HashedMap<Session>();

  open(client: string, logTimeMs: number): ControlReply {
    if (!/^[\x21-\x7e]{8,128}$/.test(client)) {
      return { ok: false, code: "invalid_value", message: "a client's id is 8 to 128 characters" };
    }
    if (!this.map.has(client)) {
      this.map.set(client, { lastUsedMs: logTimeMs, forgottenUpTo: 0, replies: [] });
    }
    this.#forgetIdle(logTimeMs);
    return { ok: true };
  }

  /** Applies the request unless it was applied before. */
  once(request: SessionRequest, logTimeMs: number, apply: () => ControlReply): ControlReply {
    this.#forgetIdle(logTimeMs);
    const { client, sequence } = request;
    const session = this.map.get(client);
    if (!session) {
      return refuse(
        `the session ${client} is unknown or has expired; look at the state, open anew`,
      );
    }
    if (!(Number.isSafeInteger(sequence) && sequence > 0)) {
      return refuse(`a request's number is a positive integer, got ${sequence}`);
    }
    const known = session.replies.find(([answered]) => answered === sequence);
    if (known) return known[1];
    if (sequence <= session.forgottenUpTo && !session.missing?.includes(sequence)) {
      return refuse(
        `request ${sequence} of ${client} is too old: it was answered, and its reply is forgotten, or ${MAX_MISSING} later ones were left out; look at the state`,
      );
    }
    const reply = apply();
    // Delete first: the map's order is that of the last use.
    this.map.delete(client);
    this.map.set(client, { lastUsedMs: logTimeMs, ...withReply(session, sequence, reply) });
    return reply;
  }

  #forgetIdle(logTimeMs: number): void {
    for (const [client, { lastUsedMs }] of this.map) {
      if (logTimeMs - lastUsedMs <= SESSION_IDLE_MS && this.map.size <= MAX_SESSIONS) return;
      this.map.delete(client);
    }
  }
}

function withReply(
  { forgottenUpTo: before, missing: known = [], replies: earlier }: Session,
  sequence: number,
  reply: ControlReply,
): Omit<Session, "lastUsedMs"> {
  const all = [...earlier, [sequence, reply] as const];
  const replies = all.slice(-MAX_REPLIES);
  const dropped = all.slice(0, -MAX_REPLIES).map(([number]) => number);
  const forgottenUpTo = Math.max(before, ...dropped);
  const made = new Set(all.map(([number]) => number));
  const overtaken: number[] = [];
  for (let at = forgottenUpTo - 1; at > before && overtaken.length < MAX_MISSING; at--) {
    if (!made.has(at)) overtaken.unshift(at);
  }
  const missing = [...known.filter((at) => at !== sequence), ...overtaken].slice(-MAX_MISSING);
  return { forgottenUpTo, replies, ...(missing.length > 0 && { missing }) };
}

function refuse(message: string): ControlReply {
  return { ok: false, code: "conflict", message };
}

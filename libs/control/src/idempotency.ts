import { HARDENED } from "./cluster-version.ts";
import type { ControlReply } from "./command.ts";
import { HashedMap } from "./hashed-map.ts";

/** Kept so long after the request was first applied, by the time in the log: a day. */
const KEPT_MS = 86_400_000;
/** Requests that are remembered at once; the oldest makes room. */
const MAX_REQUESTS = 50_000;
/** About the memory that they take at once; the oldest makes room. */
const MAX_ANSWERS_BYTES = 64 * 2 ** 20;
/** Of one answer, in characters. */
const MAX_ANSWER_CHARS = 16_384;

/** Names one request of one caller, however often and through whatever master it is sent. */
export interface IdempotentRequest {
  /** The caller and a hash of what it calls the request: letters, digits, `:` and `_`, 8 to 200. */
  readonly id: string;
  /** A hash of all that was asked for. */
  readonly fingerprint: string;
  /** What the caller is told where the request succeeds, ready to be told again. */
  readonly answer: string;
}

/** What the cluster remembers of a request; immutable. */
export interface KeptAnswer {
  readonly fingerprint: string;
  readonly atMs: number;
  readonly reply: ControlReply;
  /** As it came with the request that was applied, or refused. */
  readonly answer: string;
}

/**
 * Exactly once for callers that have no session: a request that comes again is not applied again,
 * and can be told what it was told the first time. Deterministic; time is the log's.
 */
export class KeptAnswers {
  /** In the order in which they were applied. */
  readonly map = new HashedMap<KeptAnswer>();

  /** Applies the request unless it was applied before; another one under its id is refused. */
  once(
    request: IdempotentRequest,
    logTimeMs: number,
    apply: () => ControlReply,
    version: number,
  ): ControlReply {
    const maxBytes = version >= HARDENED ? MAX_ANSWERS_BYTES : Number.POSITIVE_INFINITY;
    this.#forgetOld(logTimeMs, maxBytes);
    const { id, fingerprint, answer } = request;
    const known = this.map.get(id);
    if (known) return known.fingerprint === fingerprint ? known.reply : differentRequest();
    const fault = faultOf(request);
    if (fault !== undefined) return { ok: false, code: "invalid_value", message: fault };
    const reply = apply();
    this.map.set(id, { fingerprint, atMs: logTimeMs, reply, answer });
    this.#forgetOld(logTimeMs, maxBytes);
    return reply;
  }

  #forgetOld(logTimeMs: number, maxBytes: number): void {
    for (const [id, { atMs }] of this.map) {
      const isWithin = this.map.size <= MAX_REQUESTS && this.map.bytes <= maxBytes;
      if (logTimeMs - atMs <= KEPT_MS && isWithin) return;
      this.map.delete(id);
    }
  }
}

function faultOf({ id, fingerprint, answer }: IdempotentRequest): string | undefined {
  if (!/^[A-Za-z0-9:_-]{8,200}$/.test(id)) return "a request's id is 8 to 200 letters or digits";
  if (!/^[0-9a-f]{64}$/.test(fingerprint)) return "a fingerprint is 64 hexadecimal digits";
  if (answer.length > MAX_ANSWER_CHARS)
    return `an answer has at most ${MAX_ANSWER_CHARS} characters`;
  return undefined;
}

/** The refusal of a second request under an idempotency key. */
export function differentRequest(): Extract<ControlReply, { ok: false }> {
  const message =
    "the Idempotency-Key was used for another request within the last 24 hours; give each request a key of its own";
  return { ok: false, code: "unprocessable", message };
}

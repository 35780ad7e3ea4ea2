import { HARDENED } from "./cluster-version.ts";
import type { ControlReply } from "./command.ts";
import { HashedMap } from "./hashed-map.ts";

/** Retention after the first apply, by the log's time: a day. */
const KEPT_MS = 86_400_000;
/** Requests kept at once; the oldest is evicted. */
const MAX_REQUESTS = 50_000;
/** Approximate memory of all answers; the oldest is evicted. */
const MAX_ANSWERS_BYTES = 64 * 2 ** 20;
/** The longest answer that is kept, in characters. */
const MAX_ANSWER_CHARS = 16_384;

/** Identifies one request of one caller over all its retries, through any master. */
export interface IdempotentRequest {
  /** The caller and a hash of its idempotency key: letters, digits, `:` and `_`, 8 to 200. */
  readonly id: string;
  /** A hash of the request's content. */
  readonly fingerprint: string;
  /** The response to send on success, for this request and its retries. */
  readonly answer: string;
}

/** What the cluster keeps of a request; immutable. */
export interface IdempotencyRecord {
  readonly fingerprint: string;
  readonly atMs: number;
  readonly reply: ControlReply;
  /** The answer that came with the request that was applied or refused. */
  readonly answer: string;
}

/**
 * Idempotency over any master and leader: a repeated request is not applied again and gets its
 * first answer. Deterministic; time is the log's.
 */
export class IdempotencyRecords {
  /** In the order of their apply. */
  readonly map = new HashedMap<IdempotencyRecord>();

  /** Applies the request unless it was applied before; refuses another one under its id. */
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

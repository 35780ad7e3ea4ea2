import type {
  InferenceEvents,
  InferenceEvents__Output,
} from "@heddle/contracts/generated/heddle/v1/InferenceEvents";

/**
 * A fast codec for the usual frames of a session, in the format of proto/worker.proto. It writes those
 * of plain deltas, and reads those of plain deltas, beginnings and ends. Other frames are left to the
 * general serializer.
 */

/** Field numbers of proto/worker.proto, with the wire type in the lower three bits. */
const EVENTS_TAG = (1 << 3) | 2;
const ID_TAG = 1 << 3;
const STARTED_TAG = (2 << 3) | 2;
const DELTA_TAG = (3 << 3) | 2;
const FINISH_TAG = (4 << 3) | 2;
const DONE_TAG = (5 << 3) | 2;
const CHOICE_TAG = 1 << 3;
const TEXT_TAG = (2 << 3) | 2;
const TOKENS_TAG = 3 << 3;
const TOKEN_IDS_TAG = (5 << 3) | 2;
const REASON_TAG = (2 << 3) | 2;
const STOP_TAG = (3 << 3) | 2;
const QUEUED_MS_TAG = (3 << 3) | 1;
const DOUBLE_BYTES = 8;

/** A larger frame goes to the general serializer. */
const FRAME_BYTES = 64 * 1024;
/** Bound on the tags, numbers and lengths of one event, and on one token's id. */
const MAX_HEAD_BYTES = 56;
const MAX_NUMBER_BYTES = 5;
/** Maximum UTF-8 bytes of one UTF-16 unit. */
const BYTES_PER_UNIT = 3;

const scratch = Buffer.alloc(FRAME_BYTES);

/** The frame's bytes, owned by the caller; undefined if it has more than plain deltas. */
export function encodeDeltas({ events, computed }: InferenceEvents): Buffer | undefined {
  if (!events || events.length === 0 || computed?.length) return undefined;
  let at = 0;
  for (const { id, delta } of events) {
    if (!delta || delta.logprobs?.length || delta.cut) return undefined;
    const { text = "", tokenIds = [] } = delta;
    const most = text.length * BYTES_PER_UNIT + tokenIds.length * MAX_NUMBER_BYTES;
    if (at + MAX_HEAD_BYTES + most > FRAME_BYTES) return undefined;
    const idBytes = tokenIds.reduce((sum, each) => sum + varintBytes(each), 0);
    const textBytes = Buffer.byteLength(text);
    const [eventId, choice, tokens] = [id ?? 0, delta.choice ?? 0, delta.tokens ?? 0];
    const idsBytes = idBytes > 0 ? 1 + varintBytes(idBytes) + idBytes : 0;
    const numberBytes = varintBytes(choice) + varintBytes(textBytes) + varintBytes(tokens);
    const deltaBytes = 3 + numberBytes + textBytes + idsBytes;
    const eventBytes = 2 + varintBytes(eventId) + varintBytes(deltaBytes) + deltaBytes;
    at = putNumber(at, EVENTS_TAG, eventBytes);
    at = putNumber(at, ID_TAG, eventId);
    at = putNumber(at, DELTA_TAG, deltaBytes);
    at = putNumber(at, CHOICE_TAG, choice);
    at = putNumber(at, TEXT_TAG, textBytes);
    at += scratch.write(text, at, "utf8");
    at = putNumber(at, TOKENS_TAG, tokens);
    if (idBytes === 0) continue;
    at = putNumber(at, TOKEN_IDS_TAG, idBytes);
    for (const each of tokenIds) at = putVarint(at, each);
  }
  return Buffer.from(scratch.subarray(0, at));
}

/** Returns the offset after the number. */
function putNumber(begin: number, tag: number, value: number): number {
  scratch[begin] = tag;
  return putVarint(begin + 1, value);
}

function putVarint(begin: number, value: number): number {
  let at = begin;
  let left = value >>> 0;
  for (; left > 0x7f; left >>>= 7) scratch[at++] = (left & 0x7f) | 0x80;
  scratch[at] = left;
  return at + 1;
}

function varintBytes(value: number): number {
  let bytes = 1;
  for (let left = value >>> 7; left > 0; left >>>= 7) bytes++;
  return bytes;
}

/** The frame as the general deserializer returns it; undefined for one that is left to that. */
export function decodeEvents(bytes: Uint8Array): InferenceEvents__Output | undefined {
  const reader = new Reader(bytes);
  const events: InferenceEvents__Output["events"] = [];
  while (reader.at < bytes.length) {
    if (bytes[reader.at++] !== EVENTS_TAG) return undefined;
    const event = readEvent(reader, reader.endOfMember(bytes.length));
    if (event === undefined) return undefined;
    events.push(event);
  }
  return { events, computed: [] };
}

type WireEvent = InferenceEvents__Output["events"][number];

function readEvent(reader: Reader, end: number): WireEvent | undefined {
  let id = 0;
  if (reader.bytes[reader.at] === ID_TAG) {
    reader.at++;
    id = reader.number();
  }
  const tag = reader.bytes[reader.at++];
  if (reader.endOfMember(end) !== end) return undefined;
  const event = readMember(reader, tag, id, end);
  return reader.at === end ? event : undefined;
}

function readMember(
  reader: Reader,
  tag: number | undefined,
  id: number,
  end: number,
): WireEvent | undefined {
  switch (tag) {
    case DELTA_TAG:
      return readDelta(reader, id, end);
    case STARTED_TAG:
      return readStarted(reader, id, end);
    case FINISH_TAG:
      return readFinish(reader, id, end);
    case DONE_TAG:
      return readDone(reader, id, end);
    default:
      return undefined;
  }
}

function readDelta(reader: Reader, id: number, end: number): WireEvent | undefined {
  let [choice, text, tokens] = [0, "", 0];
  const tokenIds: number[] = [];
  while (reader.at < end) {
    const tag = reader.bytes[reader.at++];
    if (tag === CHOICE_TAG) choice = reader.number();
    else if (tag === TOKENS_TAG) tokens = reader.number();
    else if (tag === TEXT_TAG) text = reader.text(end);
    else if (tag === TOKEN_IDS_TAG) reader.numbers(end, tokenIds);
    else return undefined;
  }
  const delta = { choice, text, tokens, logprobs: [], tokenIds, cut: false };
  return { id, event: "delta", delta };
}

function readStarted(reader: Reader, id: number, end: number): WireEvent | undefined {
  const numbers = [0, 0];
  let queuedMs = 0;
  while (reader.at < end) {
    const tag = reader.bytes[reader.at++] as number;
    if (tag === QUEUED_MS_TAG) queuedMs = reader.double();
    else if (!reader.member(tag, numbers)) return undefined;
  }
  const [promptTokens = 0, cachedTokens = 0] = numbers;
  return { id, event: "started", started: { promptTokens, cachedTokens, queuedMs } };
}

function readFinish(reader: Reader, id: number, end: number): WireEvent | undefined {
  let [choice, reason] = [0, ""];
  let stop: string | undefined;
  while (reader.at < end) {
    const tag = reader.bytes[reader.at++];
    if (tag === CHOICE_TAG) choice = reader.number();
    else if (tag === REASON_TAG) reason = reader.text(end);
    else if (tag === STOP_TAG) stop = reader.text(end);
    else return undefined;
  }
  const finish = { choice, reason, ...(stop !== undefined && { stop, _stop: "stop" as const }) };
  return { id, event: "finish", finish };
}

function readDone(reader: Reader, id: number, end: number): WireEvent | undefined {
  const numbers = [0, 0, 0, 0];
  while (reader.at < end) {
    if (!reader.member(reader.bytes[reader.at++] as number, numbers)) return undefined;
  }
  const [promptTokens = 0, cachedTokens = 0, completionTokens = 0, reasoningTokens = 0] = numbers;
  const done = { promptTokens, cachedTokens, completionTokens, reasoningTokens };
  return { id, event: "done", done };
}

/** A sequential reader; malformed input leaves `at` where no frame ends. */
class Reader {
  readonly bytes: Buffer;
  at = 0;

  constructor({ buffer, byteOffset, byteLength }: Uint8Array) {
    this.bytes = Buffer.from(buffer, byteOffset, byteLength);
  }

  /** A uint32. */
  number(): number {
    let value = 0;
    for (let shift = 0; shift < 35; shift += 7) {
      const byte = this.bytes[this.at++] ?? 0;
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value >>> 0;
    }
    this.at = Number.POSITIVE_INFINITY;
    return 0;
  }

  /** Reads a uint32 by its tag into its place, of a message whose first fields are such numbers. */
  member(tag: number, into: number[]): boolean {
    const field = tag >> 3;
    if ((tag & 7) !== 0 || field < 1 || field > into.length) return false;
    into[field - 1] = this.number();
    return true;
  }

  double(): number {
    const { at } = this;
    this.at = at + DOUBLE_BYTES <= this.bytes.length ? at + DOUBLE_BYTES : Number.POSITIVE_INFINITY;
    return this.at === Number.POSITIVE_INFINITY ? 0 : this.bytes.readDoubleLE(at);
  }

  /** Reads a length; returns the member's end, or an impossible offset if it exceeds `limit`. */
  endOfMember(limit: number): number {
    const length = this.number();
    return this.at + length <= limit ? this.at + length : Number.NaN;
  }

  /** A packed list. */
  numbers(limit: number, into: number[]): void {
    const end = this.endOfMember(limit);
    while (this.at < end) into.push(this.number());
    if (this.at !== end) this.at = Number.POSITIVE_INFINITY;
  }

  text(limit: number): string {
    const end = this.endOfMember(limit);
    const text = this.bytes.toString("utf8", this.at, end || this.at);
    this.at = end;
    return text;
  }
}

import { deserialize, serialize } from "node:v8";
import { LENGTH_BYTES, LengthFrameReader } from "@heddle/base/frames/length-frames";
import type { EngineEvent } from "@heddle/contracts/engine";
import type { ChildEvents, ChildLoad } from "./child-protocol.ts";

/** Room for the frame of one step; a larger one is made of its own. */
const FRAME_BYTES = 64 * 1024;
/** A frame: its length, its kind, and what the kind says. */
const DELTAS = 1;
const VALUE = 2;

/** The load's fields in the order of a frame of deltas. */
const LOAD_FIELDS = [
  "running",
  "waiting",
  "maxSequences",
  "maxQueued",
  "kvUsedTokens",
  "kvTokens",
  "promptTokens",
  "cachedTokens",
  "generatedTokens",
  "draftTokens",
  "acceptedTokens",
  "residentBytes",
] as const satisfies readonly (keyof ChildLoad)[];
const LOAD_AT = LENGTH_BYTES + 1;
const COUNT_AT = LOAD_AT + LOAD_FIELDS.length * 8;
const DELTAS_AT = COUNT_AT + 4;
/** Before a delta's ids of tokens and text: id, choice, tokens, the text's bytes, and the ids' count. */
const DELTA_HEAD_BYTES = 20;
const ID_BYTES = 4;
/** UTF-8 of one UTF-16 unit takes no more. */
const BYTES_PER_UNIT = 3;

/**
 * The frame of one step's events. Almost all steps bring plain deltas, whose frame is packed by hand:
 * the general serializer costs each side several times as much. The bytes are valid until the next.
 */
export class EventFrameWriter {
  readonly #buffer = Buffer.alloc(FRAME_BYTES);

  frame(events: readonly EngineEvent[], load: ChildLoad): Uint8Array {
    const end = this.#packDeltas(events, load);
    if (end === undefined) return valueFrame({ events, load });
    this.#buffer.writeUInt32LE(end - LENGTH_BYTES, 0);
    return this.#buffer.subarray(0, end);
  }

  /** Where the frame ends; undefined where it has more than plain deltas or does not fit. */
  #packDeltas(events: readonly EngineEvent[], load: ChildLoad): number | undefined {
    const buffer = this.#buffer;
    buffer[LENGTH_BYTES] = DELTAS;
    let at = LOAD_AT;
    for (const field of LOAD_FIELDS) at = buffer.writeDoubleLE(load[field], at);
    at = buffer.writeUInt32LE(events.length, at);
    for (const event of events) {
      if (event.type !== "delta" || event.logprobs || event.isCut) return undefined;
      const { id, choice, tokens, text, tokenIds = [] } = event;
      const textAt = at + DELTA_HEAD_BYTES + tokenIds.length * ID_BYTES;
      if (textAt + text.length * BYTES_PER_UNIT > FRAME_BYTES) return undefined;
      const bytes = buffer.write(text, textAt, "utf8");
      buffer.writeUInt32LE(id, at);
      buffer.writeUInt32LE(choice, at + 4);
      buffer.writeUInt32LE(tokens, at + 8);
      buffer.writeUInt32LE(bytes, at + 12);
      buffer.writeUInt32LE(tokenIds.length, at + 16);
      let idAt = at + DELTA_HEAD_BYTES;
      for (const tokenId of tokenIds) idAt = buffer.writeUInt32LE(tokenId, idAt);
      at = textAt + bytes;
    }
    return at;
  }
}

function valueFrame(message: ChildEvents): Uint8Array {
  const value = serialize(message);
  const frame = Buffer.alloc(LENGTH_BYTES + 1 + value.length);
  frame.writeUInt32LE(frame.length - LENGTH_BYTES, 0);
  frame[LENGTH_BYTES] = VALUE;
  value.copy(frame, LENGTH_BYTES + 1);
  return frame;
}

/** Takes the events out of the bytes of a stream, however they were cut. */
export class EventFrameReader extends LengthFrameReader {
  constructor(onEvents: (message: ChildEvents) => void) {
    super((bytes, begin, end) => onEvents(unpack(bytes, begin, end)));
  }
}

function unpack(bytes: Buffer, begin: number, end: number): ChildEvents {
  const kind = bytes[begin + LENGTH_BYTES];
  if (kind === VALUE) return deserialize(bytes.subarray(begin + LOAD_AT, end)) as ChildEvents;
  if (kind !== DELTAS) throw new Error(`a frame of the unknown kind ${kind} was received`);
  const number = (i: number): number => bytes.readDoubleLE(begin + LOAD_AT + i * 8);
  const load = {
    running: number(0),
    waiting: number(1),
    maxSequences: number(2),
    maxQueued: number(3),
    kvUsedTokens: number(4),
    kvTokens: number(5),
    promptTokens: number(6),
    cachedTokens: number(7),
    generatedTokens: number(8),
    draftTokens: number(9),
    acceptedTokens: number(10),
    residentBytes: number(11),
  } satisfies Record<(typeof LOAD_FIELDS)[number], number>;
  const events: EngineEvent[] = [];
  let at = begin + DELTAS_AT;
  for (let left = bytes.readUInt32LE(begin + COUNT_AT); left > 0; left--) {
    const idsAt = at + DELTA_HEAD_BYTES;
    const ids = bytes.readUInt32LE(at + 16);
    const textAt = idsAt + ids * ID_BYTES;
    const textEnd = textAt + bytes.readUInt32LE(at + 12);
    const tokenIds = Array.from({ length: ids }, (_, i) =>
      bytes.readUInt32LE(idsAt + i * ID_BYTES),
    );
    events.push({
      type: "delta",
      id: bytes.readUInt32LE(at),
      choice: bytes.readUInt32LE(at + 4),
      text: bytes.toString("utf8", textAt, textEnd),
      tokens: bytes.readUInt32LE(at + 8),
      ...(ids > 0 && { tokenIds }),
    });
    at = textEnd;
  }
  return { events, load };
}

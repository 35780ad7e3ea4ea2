import type {
  ParameterChunk,
  ParameterChunk__Output,
} from "@heddle/contracts/generated/heddle/v1/ParameterChunk";

/** Tags of the fields of ParameterChunk (proto/parameters.proto): number and wire type. */
const VERSION = 0x08;
const OFFSET = 0x10;
const DATA = 0x1a;
const TOTAL = 0x20;

/** Tags and numbers of a message, which are below 2^53. */
const MAX_FIELDS_BYTES = 64;

/** The buffer in which messages are encoded, one at a time; it grows to the largest one. */
let scratch = Buffer.alloc(0);

/**
 * Encodes a ParameterChunk as protobuf into a reused buffer: allocating a megabyte costs ten times
 * as much as copying into it. The result is valid until the next call in this thread; gRPC copies
 * it before it returns. The data comes last, which decoding relies on.
 */
export function encodeChunk({ version, offset, data, totalBytes }: ParameterChunk): Buffer {
  const bytes = data as Uint8Array | undefined;
  const length = bytes?.length ?? 0;
  if (scratch.length < length + MAX_FIELDS_BYTES) {
    scratch = Buffer.allocUnsafeSlow(length + MAX_FIELDS_BYTES);
  }
  let at = 0;
  const numbers = [VERSION, Number(version ?? 0), OFFSET, Number(offset ?? 0)];
  numbers.push(TOTAL, Number(totalBytes ?? 0));
  for (let i = 0; i < numbers.length; i += 2) {
    if (numbers[i + 1] === 0) continue;
    scratch[at++] = numbers[i] ?? 0;
    at = writeVarint(numbers[i + 1] ?? 0, at);
  }
  if (bytes && length > 0) {
    scratch[at++] = DATA;
    at = writeVarint(length, at);
    scratch.set(bytes, at);
  }
  return scratch.subarray(0, at + length);
}

function writeVarint(value: number, begin: number): number {
  let at = begin;
  let rest = value;
  for (; rest >= 0x80; rest = Math.floor(rest / 0x80)) scratch[at++] = (rest % 0x80) | 0x80;
  scratch[at++] = rest;
  return at;
}

/** Undefined for messages that `encodeChunk` did not write, which protobuf must decode. */
export function decodeChunk(message: Buffer): ParameterChunk__Output | undefined {
  const chunk = { version: 0, offset: 0, data: message.subarray(0, 0), totalBytes: 0 };
  let at = 0;
  const varint = () => {
    let value = 0;
    for (let scale = 1; ; scale *= 0x80) {
      const byte = message[at++] ?? 0;
      value += (byte & 0x7f) * scale;
      if (byte < 0x80 || scale > 2 ** 49) return value;
    }
  };
  while (at < message.length) {
    const tag = message[at++];
    if (tag === VERSION) chunk.version = varint();
    else if (tag === OFFSET) chunk.offset = varint();
    else if (tag === TOTAL) chunk.totalBytes = varint();
    else if (tag === DATA) {
      const length = varint();
      chunk.data = message.subarray(at, at + length);
      at += length;
    } else return undefined;
  }
  return at === message.length ? chunk : undefined;
}

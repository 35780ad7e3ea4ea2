import { deserialize, serialize } from "node:v8";
import { LENGTH_BYTES, LengthFrameReader } from "./length-frames.ts";

/** A value as a frame. Throws where it cannot be copied, as a function. */
export function valueFrame(value: unknown): Buffer {
  const bytes = serialize(value);
  const length = Buffer.alloc(LENGTH_BYTES);
  length.writeUInt32LE(bytes.byteLength);
  return Buffer.concat([length, bytes]);
}

/** Takes such frames out of the bytes of a stream. */
export function valueFrames<Value>(
  take: (value: Value) => void,
  maxBytes?: number,
): LengthFrameReader {
  return new LengthFrameReader((bytes, begin, end) => {
    take(deserialize(bytes.subarray(begin + LENGTH_BYTES, end)) as Value);
  }, maxBytes);
}

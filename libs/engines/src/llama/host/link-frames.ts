import { deserialize, serialize } from "node:v8";
import type { ChildMessage, ParentMessage } from "../protocol/child-protocol.ts";
import { LENGTH_BYTES, LengthFrameReader } from "../protocol/length-frames.ts";

/** What the host of an engine process is sent. */
export type OwnerFrame = { readonly kind: "message"; readonly message: ParentMessage };

/** What it sends. */
export type HostFrame =
  | { readonly kind: "message"; readonly message: ChildMessage }
  | { readonly kind: "events"; readonly bytes: Uint8Array }
  | { readonly kind: "errorOutput"; readonly text: string }
  | { readonly kind: "failed"; readonly message: string }
  | { readonly kind: "ended"; readonly how: string };

export function linkFrame(frame: OwnerFrame | HostFrame): Buffer {
  const value = serialize(frame);
  const length = Buffer.alloc(LENGTH_BYTES);
  length.writeUInt32LE(value.byteLength);
  return Buffer.concat([length, value]);
}

/** Takes such frames out of the bytes of a stream. */
export function linkFrames<Frame extends OwnerFrame | HostFrame>(
  take: (frame: Frame) => void,
): LengthFrameReader {
  return new LengthFrameReader((bytes, begin, end) => {
    take(deserialize(bytes.subarray(begin + LENGTH_BYTES, end)) as Frame);
  });
}

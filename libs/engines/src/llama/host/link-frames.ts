import type { LengthFrameReader } from "@heddle/base/frames/length-frames";
import { valueFrame, valueFrames } from "@heddle/base/frames/value-frames";
import type { ChildMessage, ParentMessage } from "../protocol/child-protocol.ts";

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
  return valueFrame(frame);
}

/** Takes such frames out of the bytes of a stream. */
export function linkFrames<Frame extends OwnerFrame | HostFrame>(
  take: (frame: Frame) => void,
): LengthFrameReader {
  return valueFrames(take);
}

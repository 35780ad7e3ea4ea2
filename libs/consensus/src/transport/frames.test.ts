// holds: consensus-transport

import { expect, test } from "vitest";
import { FRAME_KINDS, FrameReader, frameOf } from "./frames.ts";

const bodies = ["", "a", "a longer body", "x".repeat(3_000)];
const stream = Buffer.concat(bodies.map((body) => frameOf(FRAME_KINDS.hello, Buffer.from(body))));

test("frames: are decoded whole from pieces of any length", () => {
  for (const size of [1, 2, 4, 5, 6, 7, 100, stream.length]) {
    const reader = new FrameReader();
    const seen: string[] = [];
    for (let at = 0; at < stream.length; at += size) {
      for (const { kind, body } of reader.push(stream.subarray(at, at + size))) {
        expect(kind).toBe(FRAME_KINDS.hello);
        seen.push(body.toString());
      }
    }
    expect(seen, `pieces of ${size}`).toEqual(bodies);
  }
});

test("frames: an unknown peer may send at most a hello, a known one more", () => {
  const long = frameOf(FRAME_KINDS.messages, Buffer.alloc(5_000));
  expect(() => new FrameReader().push(long.subarray(0, 5))).toThrow(/a frame of 5000 bytes/);
  const reader = new FrameReader();
  reader.maxBytes = 5_000;
  expect(reader.push(long)).toHaveLength(1);
});
